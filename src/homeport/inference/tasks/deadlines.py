"""Deadlines of tasks that wait in a queue, with one timer of the event loop for all of them.

Thousands may wait. A timer, its context and what it calls would be a dozen objects for each, which garbage collection
looks at again and again: a third of what an admission cost (ADR 0224). Here a task that waits is a number and its id.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

SPARE_MAX: Final = 1_024
"""Entries of tasks that no longer wait, before they are removed."""
EARLY_SECONDS: Final = 0.001
"""A timer may fire so much earlier than it was asked to."""


class TaskDeadlines:
    def __init__(self, seconds_left: Callable[[str], float | None], expire: Callable[[str], None]) -> None:
        """`seconds_left` is None for a task that no longer waits; `expire` is called for one that has none left."""
        self._seconds_left = seconds_left
        self._expire = expire
        self._entries: list[tuple[float, str]] = []
        """A heap: when to look at which task, by the clock of the event loop."""
        self._most = SPARE_MAX
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, task_id: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        heapq.heappush(self._entries, (when, task_id))
        if len(self._entries) > self._most:
            self._remove_old()
        if self._timer is None or when < self._timer.when():
            self._wake_at(when)

    def close(self) -> None:
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._entries and self._entries[0][0] <= now + EARLY_SECONDS:
            task_id = heapq.heappop(self._entries)[1]
            left = self._seconds_left(task_id)
            if left is not None and left <= EARLY_SECONDS:
                self._expire(task_id)
            elif left is not None:
                # The clocks differ a little, or the id has come back with another task.
                self.watch(task_id, left)
        if self._entries and self._timer is None:
            self._wake_at(self._entries[0][0])

    def _remove_old(self) -> None:
        self._entries = [each for each in self._entries if self._seconds_left(each[1]) is not None]
        heapq.heapify(self._entries)
        self._most = max(SPARE_MAX, 2 * len(self._entries))
