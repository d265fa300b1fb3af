"""What a receiver does with a batch of another role's buffer: store its new lines, or ask for earlier ones."""

from collections.abc import Sequence

from homeport.core.logs.line import LogBatch, LogLine
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LogArrival:
    """Batches of one sender, in order."""

    sender: str
    """`node/ID` or `site/NAME`: it has one buffer at a time."""
    site: str
    batches: Sequence[LogBatch]


@dataclass(frozen=True, slots=True)
class TakenLines:
    lines: Sequence[tuple[str, LogLine]]
    """What is new, with the node of each line."""
    last: int
    """The number up to which the sender may forget its lines."""


def take(batch: LogBatch, last: int) -> TakenLines:
    """`last` is the last number stored of this buffer; 0 for a buffer that is not known.

    A batch that does not follow what is stored is refused as a whole: the answer makes the sender begin there again,
    with the oldest line that it still has.
    """
    if batch.previous > last:
        return TakenLines((), last)
    new = tuple(each for each in batch.lines if each[1].sequence > last)
    return TakenLines(new, new[-1][1].sequence if new else last)
