"""Which lines are requested."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from homeport.core.logs.line import RANKS, LogLine, Origin, SourceKind, StoredLine
from homeport.core.values.filters import TEXT, Part, Parts, contains, matches
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Among:
    """A part of the filter language that is about deployments and labels, which lines do not carry: what it stood for
    when the filter was read."""

    deployments: frozenset[str]
    """Their ids."""
    places: frozenset[tuple[str, str]] = frozenset()
    """A site with no node for all of it, or a site and a node."""
    is_negated: bool = False

    def holds(self, origin: Origin) -> bool:
        is_about = (
            (origin.kind == SourceKind.DEPLOYMENT and origin.subject in self.deployments)
            or (origin.site, "") in self.places
            or (origin.site, origin.node) in self.places
        )
        return is_about is not self.is_negated


@dataclass(frozen=True, slots=True)
class LogFilter:
    """None asks for any."""

    site: str | None = None
    node: str | None = None
    kind: str | None = None
    deployment: str | None = None
    component: str | None = None
    job: str | None = None
    level: str | None = None
    """This level and those above it."""
    since: datetime | None = None
    until: datetime | None = None
    """Before this time."""
    text: str | None = None
    """What the message or a field contains, in any case."""
    parts: Parts = ()
    """Of the filter language. Those about deployments and labels are `among` by the time lines are read."""
    among: tuple[Among, ...] = ()
    sites: frozenset[str] | None = None
    """The only sites whose lines the caller may see, and not central's own."""

    def wants(self, origin: Origin) -> bool:
        if self.sites is not None and origin.site not in self.sites:
            return False
        return (
            self.site in (None, origin.site)
            and self.node in (None, origin.node)
            and self.kind in (None, origin.kind)
            and (
                self.deployment is None
                or (origin.kind == SourceKind.DEPLOYMENT and origin.subject == self.deployment)
            )
            and (self.component is None or self.component in origin.component_names)
            and (self.job is None or (origin.kind == SourceKind.JOB and origin.subject == self.job))
            and all(each.holds(origin) for each in self.among)
            and all(_is_from(part, origin) for part in self.parts)
        )

    def fits(self, line: LogLine) -> bool:
        """Whether a line of a wanted origin is asked for."""
        if self.level is not None and RANKS.get(line.level, 0) < RANKS[self.level]:
            return False
        if self.since is not None and line.at < self.since:
            return False
        if self.until is not None and line.at >= self.until:
            return False
        if self.text is not None and not _says(self.text, line):
            return False
        return all(_fits(part, line) for part in self.parts)

    def shown(self, lines: Iterable[StoredLine]) -> list[StoredLine]:
        """Lines of one origin follow each other, mostly, so that it is looked at once."""
        found: list[StoredLine] = []
        last, is_wanted = None, False
        for stored in lines:
            if stored.origin is not last:
                last, is_wanted = stored.origin, self.wants(stored.origin)
            if is_wanted and self.fits(stored.line):
                found.append(stored)
        return found


_ORIGINS: Final[Mapping[str, Callable[[Origin], Sequence[str]]]] = {
    "site": lambda origin: (origin.site,),
    "node": lambda origin: (origin.node,),
    "component": lambda origin: origin.component_names,
    "job": lambda origin: (origin.subject if origin.kind == SourceKind.JOB else "",),
}


def _is_from(part: Part, origin: Origin) -> bool:
    if part.word not in _ORIGINS:
        return True
    names = _ORIGINS[part.word](origin)
    return part.holds(lambda value: any(matches(value, name) for name in names))


def _fits(part: Part, line: LogLine) -> bool:
    if part.word == TEXT:
        return part.holds(lambda value: _says(value, line))
    if part.word == "code":
        return part.holds(lambda value: contains(value, line.text) or _has(value, line))
    return True


def _says(text: str, line: LogLine) -> bool:
    wanted = text.casefold()
    return wanted in line.text.casefold() or any(wanted in value.casefold() for value in line.fields.values())


def _has(pattern: str, line: LogLine) -> bool:
    return any(matches(pattern, value) for value in line.fields.values())
