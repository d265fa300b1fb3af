"""Whether the queue or a pool has changed: one look for all who follow it, and none without followers."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

import anyio

from homeport.inference.pools.registry import PoolRegistry
from homeport.inference.tasks.scheduler import Scheduler

LOOK_SECONDS: Final = 0.5
"""How often a followed queue is compared with what it was: thousands of tasks a second are two changes."""


class QueueChanges:
    """`with` it, while it is followed."""

    def __init__(self, registry: PoolRegistry, scheduler: Scheduler, monotonic: Callable[[], float]) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._monotonic = monotonic
        self._followers = 0
        self._looking: asyncio.Task[None] | None = None
        self._changed = anyio.Event()
        self.version = 0
        """Another one with each change that was seen."""

    def __enter__(self) -> "QueueChanges":
        self._followers += 1
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._followers -= 1
        if not self._followers and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def after(self, version: int) -> int:
        """Returns the version as soon as it is another one."""
        while self.version == version:
            await self._changed.wait()
        return self.version

    async def _look(self) -> None:
        known = self._seen()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            seen = self._seen()
            if seen != known:
                known = seen
                self.version += 1
                self._changed.set()
                self._changed = anyio.Event()

    def _seen(self) -> tuple[object, ...]:
        """Equal while nothing changed that the queue or a pool shows."""
        now, placed = self._monotonic(), self._scheduler.placements
        pools = (
            (pool_id, repr(self._registry.health(pool_id, queue_depth=self._scheduler.depth(pool_id), now=now)))
            for pool_id in self._registry.pool_ids()
        )
        return (placed[-1].task_id if placed else "", *pools)
