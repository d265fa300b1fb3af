"""Where a role keeps log lines: those it forwards, and those it answers questions from."""

from collections.abc import Sequence
from typing import Protocol

from homeport.core.logs.intake import LogArrival
from homeport.core.logs.line import LogLine, Origin, StoredLine
from homeport.core.logs.query import LogFilter
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LogsFound:
    lines: Sequence[StoredLine]
    """In the order that was asked for."""
    next: int | None
    """The id after which to continue; None at the end. A page may be short, or empty, and still have a next
    one: a query examines a bounded number of lines."""


class LogStore(Protocol):
    """All calls raise TransientError while the disk or the database does not work.

    Lines are numbered in the order of their commits, so that a reader who has seen an id has seen all before it.
    """

    async def append(self, lines: Sequence[tuple[Origin, LogLine]]) -> None:
        """The role's own lines."""
        ...

    async def take(self, arrivals: Sequence[LogArrival]) -> Sequence[int]:
        """Stores what is new. Returns for each the last number of its buffer that is durable here: the sender may
        forget lines up to it, and has to send those after it."""
        ...

    async def find(self, query: LogFilter, *, is_newest_first: bool, after: int | None, limit: int) -> LogsFound:
        """A page of the matching lines; `after` is the `next` of the page before."""
        ...

    async def after(self, cursor: int, limit: int) -> Sequence[StoredLine]:
        """The lines that follow `cursor`, of every origin."""
        ...

    async def bounds(self) -> tuple[int, int]:
        """The ids of the oldest and of the newest line; where there is none, the newest is that of the last one that
        there was, and the oldest the one above it."""
        ...

    async def cursor(self, consumer: str) -> int:
        """How far a consumer has come; 0 at the beginning. From its first call on, lines that it has not had are
        replaced by a gap when they have to be removed."""
        ...

    async def advance(self, consumer: str, cursor: int) -> None: ...

    async def trim(self, *, days: float, bytes_max: int) -> None:
        """Removes the oldest lines above these bounds, some thousands at a time."""
        ...

    async def wait(self, after: int) -> None:
        """Returns when there may be lines after this id."""
        ...

    async def close(self) -> None: ...
