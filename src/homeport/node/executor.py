"""One worker per deployment, the newest generation wins. Orders are judged by `core.node.orders`, made durable, and
only then acted on. A worker lives as long as there is work: an idle deployment costs nothing.

Repairs (`node.keeping`) run in the same workers, so that an order and a repair never touch one deployment at once.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Result
from homeport.core.node.entry import Entry
from homeport.core.node.orders import Verdict, judge
from homeport.core.secrets import masked, secret_values
from homeport.errors import EngineUnavailable, HomeportError, WorkFailed
from homeport.node.drift import runs
from homeport.node.journal import Journal
from homeport.node.metrics import NodeMetrics
from homeport.node.news import Outlet
from homeport.node.tracing import OrderSpans
from homeport.node.work import Trail, Work
from homeport.ports import Clock, Observation, Runtime
from homeport.vocabulary import Code, DeploymentId, NodeId, OrderKind, Step

log = logging.getLogger("homeport.node")

INTAKE_MAX = 256
"""Orders taken up with one commit; a site that sends faster waits."""
WRITE_AGAIN_SECONDS = 2.0

Job = Callable[[], Awaitable[None]]
SpansOf = Callable[[Order], OrderSpans]


class Executor:
    def __init__(
        self,
        *,
        runtime: Runtime,
        journal: Journal,
        work: Work,
        outlet: Outlet,
        metrics: NodeMetrics,
        clock: Clock,
        spans_of: SpansOf | None = None,
    ) -> None:
        self._runtime = runtime
        self._journal = journal
        self._work = work
        self._outlet = outlet
        self._metrics = metrics
        self._clock = clock
        self._spans_of = spans_of or partial(OrderSpans, None, clock, NodeId(""))
        self._workers: dict[DeploymentId, _Worker] = {}
        self._into, self._intake = anyio.create_memory_object_stream[Order](INTAKE_MAX)
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Takes up orders until cancelled."""
        async with anyio.create_task_group() as self._group, self._into, self._intake:
            task_status.started()
            while True:
                batch = [await self._intake.receive()]
                while len(batch) < INTAKE_MAX and self._intake.statistics().current_buffer_used:
                    batch.append(self._intake.receive_nowait())
                await self._take(batch)

    async def order(self, order: Order) -> None:
        """An order from the site. Waits while too many are being taken up."""
        await self._into.send(order)

    def resume(self, before: Callable[[Entry], Awaitable[None]]) -> None:
        """Carries on with what was interrupted; `before` runs first for each."""
        for entry in self._journal.entries.values():
            if entry.result is None and not self.is_busy(entry.order.deployment_id):
                log.info(
                    "order resumed after a restart",
                    extra={"deployment": entry.order.deployment_id, "generation": entry.order.generation},
                )
                self._start(entry.order.deployment_id, partial(self._resumed, before, entry))

    def is_busy(self, deployment_id: DeploymentId) -> bool:
        return deployment_id in self._workers

    def repair(self, deployment_id: DeploymentId, job: Job) -> None:
        """Runs a repair unless there is work already; an order that comes meanwhile cancels it."""
        if deployment_id not in self._workers:
            self._start(deployment_id, job)

    async def _take(self, orders: Sequence[Order]) -> None:
        fresh: dict[DeploymentId, Order] = {}
        for order in orders:
            entry = self._journal.entries.get(order.deployment_id)
            waiting = fresh.get(order.deployment_id)
            verdict = judge(order, Entry(waiting) if waiting else entry)
            self._metrics.orders.labels(verdict.value).inc()
            log.info(
                "order received",
                extra={
                    "verdict": verdict.value,
                    "deployment": order.deployment_id,
                    "generation": order.generation,
                    "kind": order.kind.value,
                    "reason": order.reason,
                },
            )
            if verdict is Verdict.ACCEPT:
                fresh[order.deployment_id] = order
            elif verdict is not Verdict.BUSY:
                await self._repeat(order)
        if fresh:
            await self._accept(tuple(fresh.values()))

    async def _repeat(self, order: Order) -> None:
        """Answers from the journal. To an older order this says which newer one has ended, if one has."""
        try:
            await self._journal.repeat(order.deployment_id)
        except WorkFailed as error:
            log.warning("the journal cannot be written", extra={"error": str(error)})
        self._outlet.wake()

    async def _accept(self, orders: Sequence[Order]) -> None:
        try:
            await self._journal.accept(orders)
        except WorkFailed as error:
            # What is not durable is not acted on. The site is told, and tries again later.
            log.warning("orders refused: the journal cannot be written", extra={"error": str(error)})
            for order in orders:
                entry = self._journal.entries.get(order.deployment_id)
                # What runs was not touched, and the site must not think that it has to bring it back.
                observed = await self._observe(order.deployment_id) or ()
                self._outlet.unrecorded(self._failed(order, Failure(error.code, str(error)), observed, entry))
            return
        for order in orders:
            message = order.reason or f"{order.kind.value} accepted"
            self._work.tell(order.generation, order.deployment_id, Step.ACCEPTED, "", message)
            entry = self._journal.entries[order.deployment_id]
            self._start(order.deployment_id, partial(self._perform, entry))

    def _start(self, deployment_id: DeploymentId, job: Job) -> None:
        worker = self._workers.get(deployment_id)
        if worker is not None:
            worker.replace(job)
            return
        assert self._group is not None, "run() comes first"
        self._workers[deployment_id] = worker = _Worker(job)
        self._group.start_soon(self._serve, deployment_id, worker)

    async def _serve(self, deployment_id: DeploymentId, worker: "_Worker") -> None:
        try:
            await worker.run()
        finally:
            del self._workers[deployment_id]
            self._outlet.forget(deployment_id)

    async def _resumed(self, before: Callable[[Entry], Awaitable[None]], entry: Entry) -> None:
        await before(entry)
        await self._perform(entry)

    async def _perform(self, entry: Entry) -> None:
        order, started = entry.order, self._clock.monotonic()
        trail = Trail(self._spans_of(order))
        failure: Failure | None = None
        try:
            if order.kind is OrderKind.REMOVE:
                await self._work.remove(order, entry.components, trail)
            else:
                assert order.release is not None, "an order to apply carries a release"
                await self._work.apply(order, order.release, entry.components, trail)
        except WorkFailed as error:
            failure = Failure(error.code, str(error), error.source)
        except EngineUnavailable as error:
            failure = Failure(Code.ENGINE_UNREACHABLE, f"{error} {error.hint or ''}".strip())
        except Exception as error:
            # The end of this order's road: it must not take the other deployments' workers with it.
            log.exception("order failed by a fault of the node", extra={"deployment": order.deployment_id})
            failure = Failure(Code.INTERNAL, f"{type(error).__name__}: {error}")
        if failure is not None:
            # A program may have printed what it was given.
            failure = replace(failure, message=masked(failure.message, secret_values(order.release)))
        trail.spans.end(failure)
        await self._finish(entry, failure, trail)
        self._metrics.durations.labels(order.kind.value).observe(self._clock.monotonic() - started)

    async def _finish(self, entry: Entry, failure: Failure | None, trail: Trail) -> None:
        order = entry.order
        fields = {"deployment": order.deployment_id, "generation": order.generation, "kind": order.kind.value}
        if failure is None:
            result = Result(
                deployment_id=order.deployment_id,
                generation=order.generation,
                kind=order.kind,
                succeeded=True,
                at=self._clock.now(),
                deleted=order.kind is OrderKind.REMOVE,
                release_runs=order.kind is OrderKind.APPLY,
            )
            await self._record(result, keeps_good=False)
            log.info("order done", extra=fields)
            return
        observed = await self._observe(order.deployment_id)
        result = self._failed(order, failure, observed or (), entry)
        self._metrics.failures.labels(failure.code).inc()
        log.warning("order failed", extra={**fields, "code": failure.code, "error": failure.message})
        await self._record(result, keeps_good=result.release_runs or not trail.has_changed)

    def _failed(self, order: Order, failure: Failure, observed: Sequence[Observation], entry: Entry | None) -> Result:
        is_removal = order.kind is OrderKind.REMOVE
        if is_removal and failure.code != Code.ENGINE_UNREACHABLE:
            failure = replace(failure, code=Code.REMOVE_FAILED)
        return Result(
            deployment_id=order.deployment_id,
            generation=order.generation,
            kind=order.kind,
            succeeded=False,
            at=self._clock.now(),
            failure=failure,
            exit_code=1 if is_removal else 0,
            release_runs=entry is not None and runs(entry.good, observed),
        )

    async def _observe(self, deployment_id: DeploymentId) -> Sequence[Observation] | None:
        try:
            return await self._runtime.observe(deployment_id)
        except HomeportError as error:
            log.warning("cannot see what still runs", extra={"deployment": deployment_id, "error": str(error)})
            return None

    async def _record(self, result: Result, *, keeps_good: bool) -> None:
        """A result that cannot be written is kept and tried again: a disk that was full may be freed."""
        while True:
            try:
                await self._journal.finish(result, keeps_good=keeps_good)
            except WorkFailed as error:
                log.warning("the result waits for the journal", extra={"error": str(error)})
                await anyio.sleep(WRITE_AGAIN_SECONDS)
            else:
                self._outlet.wake()
                return


class _Worker:
    """Runs one job after the other; a new one cancels the one that runs."""

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
