"""One worker for each piece of work, the newest generation wins. Orders are checked by `core.node.orders`, made
durable, and only then carried out, by the handler of their kind. A worker exists while there is something to do.

Repairs (`node.watch.repair`) run in the same workers, so that an order and a repair never run concurrently.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus

from homeport.capability.node import Done, Handler
from homeport.core.model.instance import Failure
from homeport.core.model.order import Assignment, Order, Result, WorkKey
from homeport.core.node.entry import JournalEntry
from homeport.core.node.orders import OrderVerdict, judge
from homeport.errors import WorkFailed
from homeport.log import get_log
from homeport.node.journal.journal import Journal
from homeport.node.link.news import Outlet
from homeport.node.pages.metrics import NodeMetrics
from homeport.ports import Clock
from homeport.vocabulary import Code, DeploymentId, OrderKind

log = get_log("homeport.node")

FORGOTTEN = "The node has reported the result of this order before, and its site has lost it."
INTAKE_MAX = 256
"""Orders accepted with one commit; a site that sends faster has to wait."""
WRITE_AGAIN_SECONDS = 2.0
STARTS_MAX = 3
"""How often the node may be killed in the middle of one order before it gives up on the order."""
STOP_SECONDS = 1.0

Job = Callable[[], Awaitable[None]]


class Executor:
    def __init__(
        self,
        *,
        handlers: Mapping[str, Handler],
        journal: Journal,
        outlet: Outlet,
        metrics: NodeMetrics,
        clock: Clock,
    ) -> None:
        """`handlers` by kind of work; an order of any other kind is refused."""
        self._handlers = handlers
        self._journal = journal
        self._outlet = outlet
        self._metrics = metrics
        self._clock = clock
        self._workers: dict[WorkKey, _Worker] = {}
        self._into, self._intake = anyio.create_memory_object_stream[Order](INTAKE_MAX)
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Accepts orders until cancelled."""
        try:
            async with anyio.create_task_group() as self._group, self._into, self._intake:
                task_status.started()
                while True:
                    batch = [await self._intake.receive()]
                    while len(batch) < INTAKE_MAX and self._intake.statistics().current_buffer_used:
                        batch.append(self._intake.receive_nowait())
                    await self._take(batch)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        """A stopped node has not crashed, and records that for its unfinished orders."""
        unfinished = [key for key, entry in self._journal.entries.items() if entry.result is None]
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            try:
                await self._journal.stop(unfinished)
            except WorkFailed as error:
                log.warning("unfinished orders count as crashed", error=str(error))

    def refuse(self, assignment: Assignment, failure: Failure) -> None:
        """Answers an unreadable order, or one of an unknown kind. Nothing was changed, and nothing of it is
        stored."""
        self._metrics.orders.labels("unknown" if failure.code == Code.UNKNOWN_KIND else "unreadable").inc()
        self._outlet.unrecorded(
            Result(
                deployment_id=DeploymentId(assignment.id),
                generation=assignment.generation,
                kind=OrderKind.APPLY,
                succeeded=False,
                at=self._clock.now(),
                failure=failure,
                release_runs=True,
                work=assignment.kind,
            )
        )

    async def order(self, order: Order) -> None:
        """An order from the site. Waits while too many are being accepted."""
        await self._into.send(order)

    def resume(self, before: Callable[[JournalEntry], Awaitable[None]]) -> None:
        """Resumes interrupted orders; `before` runs first for each."""
        for key, entry in self._journal.entries.items():
            if entry.result is None and not self.is_busy(key) and key.kind in self._handlers:
                log.info("order resumed after a restart", work=str(key), generation=entry.order.generation)
                self._start(key, partial(self._resumed, before, entry))

    def is_busy(self, key: WorkKey) -> bool:
        return key in self._workers

    def repair(self, key: WorkKey, job: Job) -> None:
        """Runs a repair unless there is other work; an order that arrives cancels it."""
        if key not in self._workers:
            self._start(key, job)

    async def _take(self, orders: Sequence[Order]) -> None:
        fresh: dict[WorkKey, Order] = {}
        for order in orders:
            if order.work not in self._handlers:
                known = ", ".join(sorted(self._handlers))
                message = f'This node cannot do work of the kind "{order.work}"; it takes {known}.'
                log.warning("order refused, kind of work unknown", work=order.work, id=order.deployment_id)
                self.refuse(order.assignment, Failure(Code.UNKNOWN_KIND, message))
                continue
            if self._journal.is_forgotten(order) and order.kind is not OrderKind.REMOVE:
                self._metrics.orders.labels(OrderVerdict.REPEAT.value).inc()
                self.refuse(order.assignment, Failure(Code.INTERNAL, FORGOTTEN))
                continue
            entry = self._journal.entries.get(order.key)
            waiting = fresh.get(order.key)
            verdict = judge(order, JournalEntry(waiting) if waiting else entry)
            self._metrics.orders.labels(verdict.value).inc()
            log.info(
                "order received",
                verdict=verdict.value,
                work=str(order.key),
                generation=order.generation,
                kind=order.kind.value,
                reason=order.reason,
            )
            if verdict is OrderVerdict.ACCEPT:
                fresh[order.key] = order
            elif verdict is not OrderVerdict.BUSY:
                await self._repeat(order)
        if fresh:
            await self._accept(tuple(fresh.values()))

    async def _repeat(self, order: Order) -> None:
        """Answers from the journal. For an older order the answer names the newer one that has ended, if any."""
        try:
            await self._journal.repeat(order.key)
        except WorkFailed as error:
            log.warning("journal write failed", error=str(error))
        self._outlet.wake()

    async def _accept(self, orders: Sequence[Order]) -> None:
        try:
            await self._journal.accept(orders)
        except WorkFailed as error:
            if len(orders) > 1:
                for order in orders:
                    await self._accept([order])  # One that cannot be written must not affect the others.
                return
            # What is not durable is not carried out. The site is notified, and retries later.
            log.warning("order rejected, journal write failed", error=str(error))
            for order in orders:
                entry = self._journal.entries.get(order.key)
                failure = Failure(error.code, str(error))
                self._outlet.unrecorded(await self._handlers[order.work].refused(order, failure, entry))
            return
        for order in orders:
            self._handlers[order.work].accepted(order)
            self._start(order.key, partial(self._perform, self._journal.entries[order.key]))

    def _start(self, key: WorkKey, job: Job) -> None:
        worker = self._workers.get(key)
        if worker is not None:
            worker.replace(job)
            return
        assert self._group is not None, "run() comes first"
        self._workers[key] = worker = _Worker(job)
        self._group.start_soon(self._serve, key, worker)

    async def _serve(self, key: WorkKey, worker: "_Worker") -> None:
        try:
            await worker.run()
        finally:
            del self._workers[key]
            self._outlet.forget(key)

    async def _resumed(self, before: Callable[[JournalEntry], Awaitable[None]], entry: JournalEntry) -> None:
        """Counted before anything is done: an order that kills the node must not do so forever."""
        if entry.starts >= STARTS_MAX:
            message = f"The node was killed {entry.starts} times while it carried out this order, and gives it up."
            given_up = await self._handlers[entry.order.work].give_up(entry, Failure(Code.NODE_CRASHED, message))
            await self._finish(entry.order, given_up)
            return
        begun = await self._begin(entry)
        if begun is not None:
            await before(begun)
            await self._perform(begun)

    async def _begin(self, entry: JournalEntry) -> JournalEntry | None:
        while True:
            try:
                return await self._journal.begin(entry.order.assignment)
            except WorkFailed as error:
                log.warning("order delayed, journal write failed", error=str(error))
                await anyio.sleep(WRITE_AGAIN_SECONDS)

    async def _perform(self, entry: JournalEntry) -> None:
        order, started = entry.order, self._clock.monotonic()
        await self._finish(order, await self._handlers[order.work].carry_out(entry))
        self._metrics.durations.labels(order.kind.value).observe(self._clock.monotonic() - started)

    async def _finish(self, order: Order, done: Done) -> None:
        fields = {"work": str(order.key), "generation": order.generation, "kind": order.kind.value}
        failure = done.result.failure
        if failure is not None:
            self._metrics.failures.labels(failure.code).inc()
            log.warning("order failed", code=failure.code, error=failure.message, **fields)
        await self._record(done.result, keeps_good=done.keeps_good)
        if done.clean_up is not None:
            await done.clean_up()
        if failure is None:
            log.info("order done", **fields)

    async def _record(self, result: Result, *, keeps_good: bool) -> None:
        """Retries a result that cannot be written: a full disk may be freed."""
        while True:
            try:
                await self._journal.finish(result, keeps_good=keeps_good)
            except WorkFailed as error:
                log.warning("result delayed, journal write failed", error=str(error))
                await anyio.sleep(WRITE_AGAIN_SECONDS)
            else:
                self._outlet.wake()
                return


class _Worker:
    """Runs one job after the other; a new one cancels the running one."""

    def __init__(self, job: Job) -> None:
        self._next: Job | None = job
        self._scope: anyio.CancelScope | None = None

    def replace(self, job: Job) -> None:
        self._next = job
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        while self._next is not None:
            job, self._next = self._next, None
            with anyio.CancelScope() as self._scope:
                await job()
            self._scope = None
