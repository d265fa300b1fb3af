"""Makes tasks durable: many callers share one write, and each waits only for its own.

A task is durable before it is acknowledged, and marked as started before its client sees the first token, so that
after a crash it is known which tasks may be run again. Endings, artifacts and usage follow behind.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from typing import Final

import anyio

from homeport.core.inference.records import (
    ARTIFACT_BYTES_KEPT_MAX,
    ARTIFACTS_KEPT_MAX,
    TASKS_KEPT_MAX,
    StoredArtifact,
    StoredTask,
    Usage,
)
from homeport.errors import HomeportError, TransientError
from homeport.failpoints import Point, passing
from homeport.inference.tasks.ownership import TaskOwnership
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock, Store, Transaction

log = get_log("homeport.inference")

TRIM_EVERY: Final = 1_000
"""Writes between two looks at what is too old."""
TRIM_BYTES: Final = 128 * 1024**2
"""Of artifacts, after which is looked earlier."""
PENDING_MAX: Final = 50_000
RETRY_SECONDS: Final = 1.0
RETRY_BYTES_MAX: Final = 64 * 1024**2
"""Of transcripts that wait for a database that cannot be written."""
ENDING_SECONDS: Final = 0.02
"""How long an ending waits for company: a write of its own for each would keep those waiting who need one."""
USAGE_SECONDS: Final = 1.0
"""How long usage is buffered, as no caller waits for it; a crash loses so much of it."""


Settled = Callable[[TransientError | None], None]
"""Called when a batch is durable, or with the reason why it is not. Must not block."""


@dataclass(slots=True)
class _Batch:
    new: dict[str, StoredTask] = field(default_factory=dict)
    earlier: dict[str, StoredTask] = field(default_factory=dict)
    """Those of `new` whose id was known already, as they were."""
    tasks: dict[str, StoredTask] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    artifacts: list[StoredArtifact] = field(default_factory=list)
    """Posted; their callers wait."""
    behind: list[StoredArtifact] = field(default_factory=list)
    """Of tasks that have ended; no caller waits."""
    usage: dict[tuple[str, str, str], Usage] = field(default_factory=dict)
    waiting: list[Settled] = field(default_factory=list)
    """One for each caller: one that is cancelled does not cancel the others' wait."""

    def settle(self, error: TransientError | None = None) -> None:
        for each in self.waiting:
            try:
                each(error)
            except Exception:  # the other callers get their answers all the same
                log.exception("caller of the task journal failed")

    def __len__(self) -> int:
        return sum(map(len, (self.new, self.tasks, self.started, self.artifacts, self.behind, self.usage)))


class TaskJournal:
    def __init__(self, store: Store, clock: Clock, ownership: TaskOwnership | None = None) -> None:
        self._ownership = ownership
        self._store = store
        self._clock = clock
        self._batch = _Batch()
        self._under_way: _Batch | None = None
        """What is being written."""
        self._noted = asyncio.Event()
        self._due = math.inf
        """When what was noted has to be written, on the loop's clock."""
        self._hurry = asyncio.Event()
        """A caller waits, or something is due earlier than it was."""
        self._writes = 0
        self._artifact_bytes = 0
        """Written since the last look at what is too much."""
        self._day = ""
        self._day_until = 0.0
        self.on_used: Callable[[], None] = lambda: None
        """Called whenever something was used. Must not block."""

    async def add(self, task: StoredTask) -> StoredTask | None:
        """Returns when it is durable: None, or the task that has had this id before, and then nothing was written.
        Raises TransientError where it could not be written."""
        batch = self._batch
        batch.new[task.id] = task
        await self._durable()
        return batch.earlier.get(task.id)

    def add_soon(self, task: StoredTask, done: Callable[[StoredTask | None, TransientError | None], None]) -> None:
        """The same without a task that waits: calls `done` with what `add` would return or raise."""
        batch = self._batch
        batch.new[task.id] = task
        batch.waiting.append(lambda error: done(batch.earlier.get(task.id), error))
        self._want(0.0)

    def start(self, task_id: str) -> Awaitable[None]:
        """Marks the task as started; what is returned is done when that is durable."""
        self._batch.started.append(task_id)
        return self._durable()

    def end(self, task: StoredTask, artifact: StoredArtifact | None) -> None:
        """Written soon. A crash before that ends the task with an error that may be retried."""
        if len(self._batch) >= PENDING_MAX:
            log.warning("task outcome not kept, too many wait for the database", task=task.id)
            return
        self._batch.tasks[task.id] = task
        if artifact is not None:
            self._batch.behind.append(artifact)
        self._want(ENDING_SECONDS)

    async def keep(self, artifact: StoredArtifact) -> None:
        self._batch.artifacts.append(artifact)
        await self._durable()

    def used(self, caller: str, model: str, *, tokens_in: int, tokens_out: int) -> None:
        key = (caller, self._today(), model)
        old = self._batch.usage.get(key) or Usage(*key)
        self._batch.usage[key] = old.plus(Usage(*key, 1, tokens_in, tokens_out))
        self._want(USAGE_SECONDS)
        self.on_used()

    async def settle(self) -> None:
        """Returns when everything that was noted so far is durable. Raises TransientError where it is not."""
        under_way = None if self._under_way is None else self._waits_in(self._under_way)
        noted = self._durable() if len(self._batch) else None
        for each in filter(None, (under_way, noted)):
            await each

    async def run(self) -> None:
        try:
            while True:
                await self._until_due()
                with anyio.CancelScope(shield=True):  # a write under way ends: the store limits how long it takes
                    await self._write()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await self._write()

    def _want(self, seconds: float) -> None:
        due = asyncio.get_running_loop().time() + seconds
        if due < self._due:
            self._due = due
            self._hurry.set()
        self._noted.set()

    async def _until_due(self) -> None:
        await self._noted.wait()
        while (left := self._due - asyncio.get_running_loop().time()) > 0:
            self._hurry.clear()
            with anyio.move_on_after(left):
                await self._hurry.wait()

    async def _write(self) -> None:
        self._noted.clear()
        self._due = math.inf
        batch, self._batch = self._batch, _Batch()
        if not len(batch):
            return
        if batch.new:
            passing(Point.TASK_BEFORE_ADMISSION)
        if batch.tasks:
            passing(Point.TASK_BEFORE_END)
        try:
            await self._store_batch(batch)
        except HomeportError as error:
            log.warning("tasks not written", why=str(error), tasks=len(batch.tasks))
            if isinstance(error, TransientError):
                self._retry(batch)
            batch.settle(TransientError(f"It could not be written: {error}", hint=error.hint))
            await anyio.sleep(RETRY_SECONDS)
            return
        if batch.new:
            passing(Point.TASK_AFTER_ADMISSION)
        if batch.started:
            passing(Point.TASK_AFTER_START)
        batch.settle()

    async def _store_batch(self, batch: _Batch) -> None:
        self._under_way = batch
        try:
            if self._ownership is None:
                await self._store.write(lambda transaction: self._apply(transaction, batch))
            else:
                await self._ownership.write(self._store, lambda transaction: self._apply(transaction, batch))
        finally:
            self._under_way = None

    async def _apply(self, transaction: Transaction, batch: _Batch) -> None:
        # Those that have ended first: one of them may be sent again by now, and is not found as if it still waited.
        # It never is one that this batch adds, as a task begins when its admission is durable.
        await transaction.put_tasks(list(batch.tasks.values()))
        if batch.new:
            batch.earlier = {task.id: task for task in await transaction.add_tasks(list(batch.new.values()))}
        if batch.started:
            await transaction.start_tasks(batch.started)
        await transaction.put_artifacts([*batch.artifacts, *batch.behind])
        if batch.artifacts:
            await transaction.share_artifacts(batch.artifacts)
        await transaction.add_usage(list(batch.usage.values()))
        self._writes += 1
        self._artifact_bytes += sum(each.size_bytes for each in (*batch.artifacts, *batch.behind))
        if self._writes % TRIM_EVERY == 1:
            await transaction.trim_tasks(keep=TASKS_KEPT_MAX)
        if self._writes % TRIM_EVERY == 1 or self._artifact_bytes > TRIM_BYTES:
            self._artifact_bytes = 0
            await transaction.trim_artifacts(keep=ARTIFACTS_KEPT_MAX, bytes_max=ARTIFACT_BYTES_KEPT_MAX)

    def _retry(self, batch: _Batch) -> None:
        """What no caller waits for was promised already, and is written with the next batch, while there is room.
        Where only the database's answer was lost, usage counts twice."""
        newer = self._batch
        for task_id, task in batch.tasks.items():
            if len(newer) < PENDING_MAX:
                newer.tasks.setdefault(task_id, task)
        room = RETRY_BYTES_MAX
        for artifact in batch.behind:
            room -= artifact.size_bytes
            if room > 0 and len(newer) < PENDING_MAX:
                newer.behind.append(artifact)
        for key, used in batch.usage.items():
            newer.usage[key] = used.plus(newer.usage.get(key) or Usage(*key))
        if len(newer):
            self._want(RETRY_SECONDS)

    def _durable(self) -> "asyncio.Future[None]":
        made = self._waits_in(self._batch)
        self._want(0.0)
        return made

    def _waits_in(self, batch: _Batch) -> "asyncio.Future[None]":
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batch.waiting.append(partial(_resolve, made))
        return made

    def _today(self) -> str:
        now = self._clock.monotonic()
        if now >= self._day_until:
            moment = self._clock.now().astimezone(UTC)
            self._day, self._day_until = moment.date().isoformat(), now + _until_next_minute(moment)
        return self._day


def _resolve(future: "asyncio.Future[None]", error: TransientError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # it may never be awaited


def _until_next_minute(moment: datetime) -> float:
    return 60.0 - moment.second
