"""A log line, where it comes from, and its place in a buffer.

Every buffer between a line and its reader numbers its lines. A receiver remembers the last number of each buffer, so
that a line which is sent again after a lost connection is recognised, and a missing one is noticed (ADR 0057).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from homeport.lazy_dataclass import dataclass

SOURCE_LENGTH_MAX: Final = 300
NO_FIELDS: Final[Mapping[str, str]] = {}
GAP: Final = "dropped"
"""The field of a line that replaces dropped ones: how many."""


class LogSeverity(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


RANKS: Final[Mapping[str, int]] = {level.value: rank for rank, level in enumerate(LogSeverity)}
LEVELS: Final[Sequence[str]] = tuple(RANKS)


class SourceKind(StrEnum):
    """Who writes log lines; the part of a source before the first slash."""

    CENTRAL = "central"
    SITE = "site"
    NODE = "node"
    DEPLOYMENT = "deployment"
    JOB = "job"


class LogLine(NamedTuple):
    """A tuple, since there are many: it is made in a third of the time of a frozen dataclass."""

    at: datetime
    source: str
    """`central`, `site`, `node`, `job/ID`, `deployment/ID/COMPONENT`, or `deployment/ID/COMPONENT/SERVICE` where a
    component has containers that its author has given names of their own."""
    level: str
    text: str
    fields: Mapping[str, str] = NO_FIELDS
    sequence: int = 0
    """Its number in the buffer that it is sent from; 0 before it is in one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The writer of a line in the fleet: a source at a site, and the node where it ran."""

    site: str
    node: str
    """Empty for the lines of central and of sites."""
    source: str

    @property
    def kind(self) -> str:
        return self.source.partition("/")[0]

    @property
    def subject(self) -> str:
        """The id of the deployment or of the job."""
        return self.source.split("/", 2)[1] if "/" in self.source else ""

    @property
    def component(self) -> str:
        """With the service, where it has one: `shop/db`."""
        parts = self.source.split("/", 2)
        return parts[2] if self.kind == SourceKind.DEPLOYMENT and len(parts) > 2 else ""

    @property
    def component_names(self) -> tuple[str, ...]:
        """What people may call it: `shop/db`, `shop` and `db`."""
        return (self.component, *self.component.split("/", 1)) if "/" in self.component else (self.component,)


class StoredLine(NamedTuple):
    """A line in a role's log store. Ids follow the order in which lines were stored."""

    id: int
    origin: Origin
    line: LogLine


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Lines of one buffer, in its order."""

    buffer: str
    """Identifies the buffer: a new one, after a lost disk, begins to count again."""
    previous: int
    """The number of the line before the first; every line up to it was sent earlier, or replaced by a gap."""
    lines: Sequence[tuple[str, LogLine]]
    """With the node of each; empty for the sender's own."""


def deployment_source(deployment_id: str, component: str, service: str = "") -> str:
    source = f"{SourceKind.DEPLOYMENT}/{deployment_id}/{component}"
    return f"{source}/{service}" if service and service != component else source
