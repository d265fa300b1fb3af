"""Which lines somebody asks for."""

from dataclasses import dataclass
from datetime import datetime

from homeport.core.logs.line import RANKS, LogLine, Origin, SourceKind, StoredLine


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
            and self.component in (None, origin.component)
            and (self.job is None or (origin.kind == SourceKind.JOB and origin.subject == self.job))
        )

    def fits(self, line: LogLine) -> bool:
        """Whether a line of a wanted origin is asked for."""
        if self.level is not None and RANKS.get(line.level, 0) < RANKS[self.level]:
            return False
        if self.since is not None and line.at < self.since:
            return False
        if self.until is not None and line.at >= self.until:
            return False
        if self.text is None:
            return True
        wanted = self.text.casefold()
        return wanted in line.text.casefold() or any(wanted in value.casefold() for value in line.fields.values())

    def shows(self, stored: StoredLine) -> bool:
        return self.wants(stored.origin) and self.fits(stored.line)
