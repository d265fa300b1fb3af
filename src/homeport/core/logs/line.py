"""A log line, where it comes from, and its place in a buffer.

Every buffer between a line and its reader numbers its lines. A receiver remembers the last number of each buffer, so
that a line which is sent again after a lost connection is recognised, and a missing one is noticed (ADR 0057).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

SOURCE_LENGTH_MAX: Final = 300
GAP: Final = "dropped"
"""The field of a line that stands for others which were dropped: how many."""


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


RANKS: Final[Mapping[str, int]] = {level.value: rank for rank, level in enumerate(Level)}
LEVELS: Final[Sequence[str]] = tuple(RANKS)


class SourceKind(StrEnum):
    """Who writes log lines; the part of a source before the first slash."""

    CENTRAL = "central"
    SITE = "site"
    NODE = "node"
    DEPLOYMENT = "deployment"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class LogLine:
    at: datetime
    source: str
    """`central`, `site`, `node`, `deployment/ID/COMPONENT` or `job/ID`."""
    level: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)
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
        parts = self.source.split("/", 2)
        return parts[2] if self.kind == SourceKind.DEPLOYMENT and len(parts) > 2 else ""


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A line in a role's log store. Ids follow the order in which lines were stored."""

    id: int
    origin: Origin
    line: LogLine


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of one buffer, in its order."""

    buffer: str
    """Identifies the buffer: a new one, after a lost disk, begins to count again."""
    previous: int
    """The number of the line before the first; every line up to it was sent earlier, or replaced by a gap."""
    lines: Sequence[tuple[str, LogLine]]
    """With the node of each; empty for the sender's own."""


def deployment_source(deployment_id: str, component: str) -> str:
    return f"{SourceKind.DEPLOYMENT}/{deployment_id}/{component}"
