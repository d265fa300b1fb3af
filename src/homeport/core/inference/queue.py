"""The queue of one pool: bounded, two priorities, first come first served for each key, fair between keys.

Interactive tasks come before batch ones, unless a batch task has waited longer than the limit. Within a priority,
keys take turns, so that one key with a thousand tasks delays another's single task by one place. A task whose model
no free replica serves is passed over for one that can run, and one whose model an engine would have to load first for
one whose model is loaded; those that have waited longer than the limit are asked first whenever a slot is free.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import chain, count, islice
from operator import attrgetter
from typing import Final, Generic, TypeVar

from homeport.core.inference.task import Priority
from homeport.lazy_dataclass import dataclass

LOOK_AHEAD_MAX: Final = 16
"""How deep one key's tasks are searched for one that can run."""
ORDER: Final = (Priority.INTERACTIVE, Priority.BATCH)
T = TypeVar("T")


class FullPolicy(StrEnum):
    REJECT = "reject"
    DROP_LRU = "drop-lru"


@dataclass(eq=False, slots=True)
class QueueEntry(Generic[T]):
    id: str
    key: str
    priority: Priority
    since: float
    """Seconds of a monotonic clock."""
    content: T
    number: int = 0
    """In the order of arrival, by the queue."""


@dataclass(frozen=True, slots=True)
class Enqueued(Generic[T]):
    accepted: bool
    position: int = 0
    """Among the tasks of its priority."""
    evicted: QueueEntry[T] | None = None


class PoolQueue(Generic[T]):
    def __init__(
        self, capacity: int, policy: FullPolicy = FullPolicy.REJECT, *, wait_seconds_max: float = 10.0
    ) -> None:
        self.capacity = capacity
        self.policy = policy
        self._wait_seconds_max = wait_seconds_max
        self._keys: dict[Priority, OrderedDict[str, deque[QueueEntry[T]]]] = {each: OrderedDict() for each in ORDER}
        self._entries: OrderedDict[str, QueueEntry[T]] = OrderedDict()
        """In the order of arrival."""
        self._numbers = count(1)
        self._depth = dict.fromkeys(ORDER, 0)
        self._of_key: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._entries

    def __iter__(self) -> Iterator[QueueEntry[T]]:
        return iter(list(self._entries.values()))

    def depth(self, priority: Priority) -> int:
        return self._depth[priority]

    def count_of(self, key: str) -> int:
        return self._of_key.get(key, 0)

    def offer(self, entry: QueueEntry[T]) -> Enqueued[T]:
        evicted = None
        if len(self._entries) >= self.capacity:
            evicted = self._victim(entry) if self.policy is FullPolicy.DROP_LRU else None
            if evicted is None:
                return Enqueued(accepted=False)
            self.cancel(evicted.id)
        position, entry.number = self._depth[entry.priority], next(self._numbers)
        self._keys[entry.priority].setdefault(entry.key, deque()).append(entry)
        self._entries[entry.id] = entry
        self._depth[entry.priority] += 1
        self._of_key[entry.key] = self._of_key.get(entry.key, 0) + 1
        return Enqueued(accepted=True, position=position, evicted=evicted)

    def cancel(self, entry_id: str) -> bool:
        entry = self._entries.get(entry_id)
        if entry is None:
            return False
        self._keys[entry.priority][entry.key].remove(entry)
        self._forget(entry)
        return True

    def position(self, entry_id: str) -> int | None:
        """How many tasks of its priority came before it and still wait."""
        entry = self._entries.get(entry_id)
        if entry is None:
            return None
        earlier = 0
        for each in self._entries.values():
            if each is entry:
                break
            earlier += each.priority is entry.priority
        return earlier

    def take(
        self, can_run: Callable[[T], bool], now: float, is_preferred: Callable[[T], bool] | None = None
    ) -> QueueEntry[T] | None:
        """The next task that can run, removed from the queue. Within a priority, preferred ones come first."""
        for entry in self._overdue(now):
            if can_run(entry.content):
                return self._remove(entry)
        for priority in ORDER:
            taken = None
            if is_preferred is not None:
                taken = self._take_of(priority, lambda content: is_preferred(content) and can_run(content))
            taken = taken or self._take_of(priority, can_run)
            if taken is not None:
                return taken
        return None

    def _take_of(self, priority: Priority, can_run: Callable[[T], bool]) -> QueueEntry[T] | None:
        keys = self._keys[priority]
        for key in list(keys):
            found = _first(keys[key], can_run)
            if found is not None:
                taken = self._remove(found)
                if key in keys:
                    keys.move_to_end(key)  # the others' turn
                return taken
        return None

    def _overdue(self, now: float) -> Iterator[QueueEntry[T]]:
        """In the order of arrival. Of each key so many as are searched in its turn: thousands that cannot run hide no
        other, and cost little."""
        oldest = next(iter(self._entries.values()), None)
        if oldest is None or now - oldest.since <= self._wait_seconds_max:
            return
        yield oldest
        waiting = chain.from_iterable(keys.values() for keys in self._keys.values())
        for entry in heapq.merge(*(islice(each, LOOK_AHEAD_MAX) for each in waiting), key=attrgetter("number")):
            if entry is not oldest and now - entry.since > self._wait_seconds_max:
                yield entry

    def _victim(self, newcomer: QueueEntry[T]) -> QueueEntry[T] | None:
        """The oldest batch task, else the oldest of all; a batch task never drives out an interactive one."""
        for each in self._entries.values():
            if each.priority is Priority.BATCH:
                return each
        return None if newcomer.priority is Priority.BATCH else next(iter(self._entries.values()), None)

    def _remove(self, entry: QueueEntry[T]) -> QueueEntry[T]:
        self._keys[entry.priority][entry.key].remove(entry)
        self._forget(entry)
        return entry

    def _forget(self, entry: QueueEntry[T]) -> None:
        del self._entries[entry.id]
        keys = self._keys[entry.priority]
        if not keys[entry.key]:
            del keys[entry.key]
        self._depth[entry.priority] -= 1
        self._of_key[entry.key] -= 1
        if not self._of_key[entry.key]:
            del self._of_key[entry.key]


def _first(waiting: deque[QueueEntry[T]], can_run: Callable[[T], bool]) -> QueueEntry[T] | None:
    for index, entry in enumerate(waiting):
        if index >= LOOK_AHEAD_MAX:
            return None
        if can_run(entry.content):
            return entry
    return None


def predicted_start_ms(position: int, *, slots_total: int, slots_free: int, seconds_per_task: float | None) -> int:
    """From measured rates: how long until enough of the tasks before it have ended. 100 ms each before the first
    measurement."""
    ahead = position + 1 - slots_free
    if ahead <= 0:
        return 0
    each = 100.0 if seconds_per_task is None else 1000.0 * seconds_per_task
    return int(ahead * each / max(slots_total, 1))
