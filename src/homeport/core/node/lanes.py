"""Send queues of the stream between a node and its site: which message is sent next, and which one is dropped.

Each lane is a bounded queue, and the first lane with a message is served: a flood in a later lane never delays an
earlier one by more than the message being sent. A lane that may drop drops its oldest message, and the next message
of that lane carries the number dropped; a full lane that may not drop refuses new messages.
"""

from collections import deque
from enum import Enum
from typing import Final, Generic, TypeVar

from homeport.lazy_dataclass import dataclass

T = TypeVar("T")


class Lane(Enum):
    """In order of priority."""

    CONTROL = "control"
    """Heartbeats, welcomes, settings, goodbyes."""
    ORDERS = "orders"
    """Orders and their results."""
    TELEMETRY = "telemetry"
    LOGS = "logs"


@dataclass(frozen=True, slots=True)
class Bound:
    messages_max: int
    may_drop: bool = False
    """Whether a full lane drops its oldest message; otherwise it refuses the newest."""


BOUNDS: Final = {
    Lane.CONTROL: Bound(1_000),
    Lane.ORDERS: Bound(20_000),
    Lane.TELEMETRY: Bound(60, may_drop=True),
    Lane.LOGS: Bound(500, may_drop=True),
}


@dataclass(frozen=True, slots=True)
class NextMessage(Generic[T]):
    lane: Lane
    message: T
    dropped: int
    """How many messages of this lane were dropped since the last one that was taken."""


class Lanes(Generic[T]):
    def __init__(self, bounds: dict[Lane, Bound] | None = None) -> None:
        self._bounds = bounds or BOUNDS
        self._waiting: dict[Lane, deque[T]] = {lane: deque() for lane in Lane}
        self._gap = dict.fromkeys(Lane, 0)
        self.dropped = dict.fromkeys(Lane, 0)
        """Per lane, in total."""

    def put(self, lane: Lane, message: T) -> bool:
        """False where the lane is full and may not drop: the message was not queued."""
        waiting, bound = self._waiting[lane], self._bounds[lane]
        if len(waiting) >= bound.messages_max:
            if not bound.may_drop:
                return False
            waiting.popleft()
            self._gap[lane] += 1
            self.dropped[lane] += 1
        waiting.append(message)
        return True

    def take(self) -> NextMessage[T] | None:
        """The next message to send; None when all lanes are empty."""
        lane = next((lane for lane in Lane if self._waiting[lane]), None)
        if lane is None:
            return None
        gap, self._gap[lane] = self._gap[lane], 0
        return NextMessage(lane, self._waiting[lane].popleft(), gap)

    def room(self, lane: Lane) -> int:
        return self._bounds[lane].messages_max - len(self._waiting[lane])

    def size(self, lane: Lane) -> int:
        return len(self._waiting[lane])

    def clear(self, *lanes: Lane) -> None:
        """Empties these lanes; their content is sent again on the next stream."""
        for lane in lanes:
            self._waiting[lane].clear()
