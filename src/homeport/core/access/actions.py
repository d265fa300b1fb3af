"""The access table: (method, path template) -> the action, its required level, scope and audit rule.

Each capability brings its own rows; a role merges them, and the middleware looks up every request before any route
is reached. A request that is not in the table is refused, even when a route for it exists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from homeport.lazy_dataclass import dataclass


class Level(StrEnum):
    """The lowest role that may perform the action. Each role includes the rights of the ones before it."""

    OPEN = "open"
    """Every client, without authentication."""
    KNOWN = "known"
    """Every authenticated user and every accepted machine."""
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    MACHINE = "machine"
    """A machine for itself, and administrators, who may inspect a site by hand."""
    MACHINE_ONLY = "machine-only"
    """A machine for itself. No user, whatever the role."""


class Scope(StrEnum):
    """How an action is limited for callers who may access only some sites."""

    NONE = "none"
    """The action concerns no site: every caller gets the same answer."""
    FLEET = "fleet"
    """The action touches every site, so callers limited to some sites are refused."""
    SITE = "site"
    """The site is the `{site}` of the path, or the one serving the request; the caller must have access to it."""
    NAMED = "named"
    """The body names the sites; the route checks them with `check_sites` before it does anything."""
    SEEN = "seen"
    """The route reads through `seen_by`, which hides everything at sites the caller has no access to."""


class Audit(StrEnum):
    """How a completed or failed action is audited. Refused requests are always recorded."""

    WAIT = "wait"
    """The response waits until the entry is durable."""
    ASYNC = "async"
    """The entry is written after the response: for actions too frequent to wait for a disk."""
    OWN = "own"
    """The use-case records it before it responds; only earlier failures are recorded by the middleware."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    """noun.verb, as in the audit trail."""
    least: Level
    scope: Scope
    audit: Audit


Actions = Mapping[tuple[str, str], Action]
"""The rows of one capability: (method, path template) -> action. `{name}` matches one path segment, and
`{name:path}` for one or more: all that follow, or all up to the fixed number of segments behind it."""


@dataclass(frozen=True, slots=True)
class MatchedAction:
    """The row that matches a request."""

    action: Action
    template: str
    params: Mapping[str, str]
    site: str | None
    """The site the request concerns, where its scope is one site."""


@dataclass(slots=True)
class _Branch:
    literals: dict[str, "_Branch"] = field(default_factory=dict)
    variable: "_Branch | None" = None
    rows: dict[str, tuple[str, Action]] = field(default_factory=dict)
    """By method, for a path that ends here."""
    rest: dict[str, tuple[str, Action]] = field(default_factory=dict)
    """By method, for every path that continues from here."""
    tails: list[tuple[tuple[str, ...], str, str, Action]] = field(default_factory=list)
    """Paths that continue from here and end in these segments, with method and template; the first match wins."""


_REST: Final = ":path}"
WALKED_MAX: Final = 1_024
"""Paths that are remembered, most of which are asked for again and again."""
WALKED_LENGTH_MAX: Final = 128
_NO_PARAMS: Final[Mapping[str, str]] = MappingProxyType({})


class ActionTable:
    """Looks up a request by path segments; a literal segment takes precedence over a `{variable}`."""

    def __init__(self, parts: Iterable[Actions], *, here: str | None = None) -> None:
        """`here` is the site that serves this table; None at central. Raises ValueError for contradictory rows."""
        self._root = _Branch()
        self._here = here
        self.rows: dict[tuple[str, str], Action] = {}
        self._literal: dict[tuple[str, str], MatchedAction] = {}
        """Rows without variables, which a walk would find first in any case."""
        self._walked: dict[tuple[str, str], MatchedAction] = {}
        """What was found for paths of others."""
        for part in parts:
            for (method, template), action in part.items():
                self._add(method, template, action)

    def find(self, method: str, path: str) -> MatchedAction | None:
        """None for a request that is not in the table. HEAD is treated as GET."""
        asked = "GET" if method == "HEAD" else method
        found = self._literal.get((asked, path)) or self._walked.get((asked, path))
        if found is None:
            found = self._walk(path, asked)
            if found is not None and len(path) <= WALKED_LENGTH_MAX:
                if len(self._walked) >= WALKED_MAX:
                    self._walked.clear()
                self._walked[asked, path] = found
        return found

    def methods(self, path: str) -> list[str]:
        """The methods allowed at this path, for the `Allow` header of a 405."""
        known = {method for method, _ in self.rows}
        return sorted(method for method in known if self._walk(path, method) is not None)

    def _add(self, method: str, template: str, action: Action) -> None:
        if (method, template) in self.rows:
            raise ValueError(f"{method} {template} is in the table of actions twice.")
        if not template.startswith("/") or method != method.upper():
            raise ValueError(f"{method} {template} is not a method and a path.")
        if action.scope is Scope.SITE and "{site}" not in template and self._here is None:
            raise ValueError(f"{method} {template} concerns one site, and its path does not name it.")
        if "{site}" in template and action.scope not in {Scope.SITE, Scope.FLEET}:
            raise ValueError(f"{method} {template} names a site, and its scope does not look at it.")
        self.rows[method, template] = action
        if "{" not in template:
            here = self._here if action.scope is Scope.SITE else None
            self._literal[method, template] = MatchedAction(action, template, _NO_PARAMS, here)
        branch, rows = self._root, None
        segments = template.split("/")[1:]
        for index, segment in enumerate(segments):
            if segment.endswith(_REST):
                tail = tuple(segments[index + 1 :])
                if any(each.endswith(_REST) for each in tail):
                    raise ValueError(f"{method} {template} has two parts of any length.")
                if tail:
                    branch.tails.append((tail, method, template, action))
                    return
                rows = branch.rest
            elif segment.startswith("{"):
                branch.variable = branch = branch.variable or _Branch()
            else:
                branch = branch.literals.setdefault(segment, _Branch())
        (branch.rows if rows is None else rows)[method] = (template, action)

    def _walk(self, path: str, method: str) -> MatchedAction | None:
        if not path.startswith("/"):
            return None
        segments = path.split("/")[1:]
        row = _row(self._root, segments, 0, method)
        if row is None:
            return None
        template, action = row
        params = _params(template, segments)
        site = params.get("site", self._here) if action.scope is Scope.SITE else None
        return MatchedAction(action, template, MappingProxyType(params), site)


def _row(branch: _Branch, segments: list[str], index: int, method: str) -> tuple[str, Action] | None:
    if index == len(segments):
        return branch.rows.get(method)
    segment = segments[index]
    for next_branch in (branch.literals.get(segment), branch.variable if segment else None):
        row = None if next_branch is None else _row(next_branch, segments, index + 1, method)
        if row is not None:
            return row
    for tail, known, template, action in branch.tails:
        if known == method and _ends_in(segments[index:], tail):
            return template, action
    return branch.rest.get(method)


def _ends_in(segments: list[str], tail: tuple[str, ...]) -> bool:
    """Whether the segments end in `tail` with at least one segment before it."""
    given = segments[-len(tail) :]
    return len(segments) > len(tail) and all(
        bool(segment) if name.startswith("{") else segment == name for name, segment in zip(tail, given, strict=True)
    )


def _params(template: str, segments: list[str]) -> dict[str, str]:
    params: dict[str, str] = {}
    names = template.split("/")[1:]
    for index, name in enumerate(names):
        if name.endswith(_REST):
            behind = len(names) - index - 1
            params[name[1 : -len(_REST)]] = "/".join(segments[index : len(segments) - behind])
            params |= {
                last[1:-1]: segment
                for last, segment in zip(names[index + 1 :], segments[len(segments) - behind :], strict=True)
                if last.startswith("{")
            }
            break
        if name.startswith("{"):
            params[name[1:-1]] = segments[index]
    return params
