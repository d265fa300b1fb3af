"""Drives one run: asks the core what follows, stores it, and carries out the items that are RUNNING.

Everything that is begun was stored before, with the attempt's number. A driver that is started for a stored run
carries out its RUNNING items again; each kind of step finds what it has begun under the attempt's key.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Final

import anyio
from anyio.abc import TaskGroup

from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import (
    EXPRESSION,
    TIMEOUT,
    TOO_LARGE,
    Outcome,
    action_of,
    advance,
    finished,
    next_wake,
    running,
    with_waits,
)
from homeport.core.pipelines.functions import ExpressionError
from homeport.core.pipelines.lifecycle import RUN_ENDED
from homeport.core.pipelines.limits import LOG_BYTES_MAX
from homeport.core.pipelines.model import (
    NO_RESULT,
    ItemKey,
    ItemResult,
    Pipeline,
    PipelineStep,
    Run,
    StepKind,
)
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import HomeportError, LeaseLost, NoNodeFits, PermanentError, TransientError
from homeport.failpoints import Point, passing
from homeport.fleet.central.platform import CentralPlatform
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.pipelines.events import events_between
from homeport.pipelines.reading import read_pipeline
from homeport.pipelines.service import has_rights
from homeport.pipelines.steps.work import StepKindExecutor, Work
from homeport.ports import Transaction
from homeport.vocabulary import RunState, StepState

log = get_log("homeport.pipelines")

RETRY: Final = BackoffPolicy(1.0, 30.0)
STOP_SECONDS: Final = 10.0
"""How long stopping what a step has begun may take. It is tried once; a job that it does not reach ends by its own
timeout."""
BEGUN_SECONDS: Final = 1.0
"""A try that is under way for so long has begun, whatever an earlier one waited for: one that cannot begin fails at
once."""


@dataclass(slots=True)
class _Execution:
    attempt: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_stopped: bool = False
    """By a cancellation of the run, not by the end of the role."""


class Driver:
    def __init__(
        self,
        central: CentralPlatform,
        kinds: Mapping[StepKind, StepKindExecutor],
        run: Run,
        on_ended: Callable[[Run], None],
    ) -> None:
        self._central = central
        self._on_ended = on_ended
        self._kinds = kinds
        self._run = run
        self._bell = anyio.Event()
        self._executions: dict[ItemKey, _Execution] = {}
        self._outcomes: list[tuple[ItemKey, int, Outcome]] = []
        self._results: dict[ItemKey, ItemResult] = {}
        self._resumed: set[ItemKey] = set()
        """Items that were under way when this driver began."""
        self._waits: dict[ItemKey, str] = {}
        """What items under way wait for; empty for those that have begun."""
        self.depth = run.depth

    def wake(self) -> None:
        """The stored run was changed: its cancellation was requested."""
        self._bell.set()

    async def drive(self) -> None:
        """Until the run has ended. Raises nothing but cancellation and our own bugs."""
        failures = 0
        while True:
            try:
                await self._drive()
            except LeaseLost:
                return  # Another replica goes on with it.
            except HomeportError as error:
                failures += 1
                log.warning("pipeline run interrupted, will retry", run=self._run.id, why=str(error))
                await anyio.sleep(RETRY.ceiling_seconds(failures))
            except Exception as error:  # one bad run harms itself alone, also after a restart
                log.exception("pipeline run failed because of a fault in Homeport", run=self._run.id)
                await self._give_up(f"of a fault in Homeport ({type(error).__name__}); see the log of central")
                return
            else:
                return

    async def _give_up(self, why: str) -> None:
        with suppress(HomeportError):
            await self._fail(f"it failed because {why}")

    async def _drive(self) -> None:
        async with self._central.store.read() as reader:
            stored = await reader.pipeline_run(self._run.id)
            if stored is None:
                return
            self._run = stored
            self._results = dict(await reader.pipeline_results(stored))
        self._executions, self._outcomes, self._resumed, self._waits = {}, [], set(running(stored)), {}
        try:
            pipeline = await self._central.in_thread(read_pipeline, stored.source, f"{stored.pipeline}.yaml")
        except PermanentError as error:  # Of another version of Homeport.
            await self._fail(f"its pipeline cannot be read: {error}")
            return
        failure: HomeportError | None = None
        async with anyio.create_task_group() as tasks:
            try:
                while await self._round(pipeline, tasks):
                    pass
            except HomeportError as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _round(self, pipeline: Pipeline, tasks: TaskGroup) -> bool:
        """Whether there is another one."""
        self._bell = anyio.Event()
        now = self._central.clock.now()
        run, results = self._run, dict(self._results)
        outcomes, self._outcomes = self._outcomes, []
        for key, attempt, outcome in outcomes:
            run, results[key] = _taken(pipeline, run, key, outcome, results, attempt=attempt, now=now)
        run = with_waits(await self._merged(run), self._waits)
        run = await self._central.in_thread(advance, pipeline, run, results, now)
        run = self._with_references(pipeline, run)
        if run != self._run:
            changed = {key: results[key] for key, _, _ in outcomes}
            self._run = await self._store(run, changed)
        self._results = results
        for key, _, _ in outcomes:
            self._executions.pop(key, None)
            self._waits.pop(key, None)
        if self._run.state in RUN_ENDED:
            log.info("pipeline run ended", run=self._run.id, pipeline=self._run.pipeline, state=self._run.state.value)
            return False
        for key in running(self._run):
            if key not in self._executions:
                item = self._run.step(key[0]).items[key[1]]
                execution = self._executions[key] = _Execution(item.attempt)
                tasks.start_soon(self._carry_out, pipeline, key, execution, tasks)
        if self._run.cancelled_by is not None:
            for execution in self._executions.values():
                execution.is_stopped = True
                execution.scope.cancel()
        await self._wait(pipeline)
        return True

    async def _wait(self, pipeline: Pipeline) -> None:
        moment = next_wake(pipeline, self._run)
        seconds = None
        if moment is not None:
            seconds = max(0.0, (moment - self._central.clock.now()).total_seconds())
        with anyio.move_on_after(seconds):
            await self._bell.wait()

    async def _merged(self, run: Run) -> Run:
        """Others write one thing: the request to cancel it."""
        if run.cancelled_by is not None:
            return run
        async with self._central.store.read() as reader:
            stored = await reader.pipeline_run(run.id)
        return run if stored is None else replace(run, cancelled_by=stored.cancelled_by)

    async def _store(self, run: Run, results: Mapping[ItemKey, ItemResult]) -> Run:
        now = self._central.clock.now()

        async def work(tx: Transaction) -> Run:
            stored = await tx.pipeline_run(run.id)
            version = run.version if stored is None else stored.version
            by = run.cancelled_by or (None if stored is None else stored.cancelled_by)
            written = replace(run, version=version + 1, cancelled_by=by, updated_at=now)
            await tx.put_pipeline_runs([written])
            await tx.put_pipeline_results(run.id, results)
            await tx.append_events(list(events_between(stored, written, now)))
            return written

        passing(Point.PIPELINE_BEFORE_STORE)
        written = await self._central.store.write(work)
        passing(Point.PIPELINE_AFTER_STORE)
        if written.state in RUN_ENDED:
            self._on_ended(written)
        return written

    async def _fail(self, reason: str) -> None:
        now = self._central.clock.now()
        await self._store(replace(self._run, state=RunState.FAILED, reason=reason, finished_at=now), {})

    def _with_references(self, pipeline: Pipeline, run: Run) -> Run:
        """Stored before the item begins, so that a reader finds what carries it out."""
        steps = list(run.steps)
        for place, step in enumerate(steps):
            found = list(step.items)
            for number, item in enumerate(found):
                if item.state is StepState.RUNNING and not item.reference:
                    wanted = pipeline.step(step.name)
                    work = Work(run, pipeline, wanted, number, item, {}, is_resumed=False)
                    found[number] = replace(item, reference=self._kinds[wanted.kind].reference(work))
            if tuple(found) != step.items:
                steps[place] = replace(step, items=tuple(found))
        return run if tuple(steps) == run.steps else replace(run, steps=tuple(steps))

    # --- one item ---------------------------------------------------------------------------------------------

    async def _carry_out(self, pipeline: Pipeline, key: ItemKey, execution: _Execution, tasks: TaskGroup) -> None:
        try:
            outcome = await self._attempt(pipeline, key, execution, tasks)
        except Exception:
            log.exception("step failed because of a fault in Homeport", run=self._run.id, step=key[0])
            fault = Failure("INTERNAL", "It failed because of a fault in Homeport; see the log of central")
            outcome = Outcome(failure=fault, is_final=True)
        self._outcomes.append((key, execution.attempt, outcome))
        self._bell.set()

    async def _attempt(self, pipeline: Pipeline, key: ItemKey, execution: _Execution, tasks: TaskGroup) -> Outcome:
        step, item = pipeline.step(key[0]), self._run.step(key[0]).items[key[1]]
        try:
            action = await self._central.in_thread(action_of, step, self._run, key, pipeline, self._results)
        except ExpressionError as error:
            return Outcome(failure=Failure(EXPRESSION, str(error)), is_final=True)
        work = Work(self._run, pipeline, step, key[1], item, action, key in self._resumed)
        self._resumed.discard(key)
        executor = self._kinds[step.kind]
        assert item.started_at is not None
        end = item.started_at + timedelta(seconds=step.timeout_seconds)
        seconds = max(0.0, (end - self._central.clock.now()).total_seconds())
        with execution.scope, anyio.move_on_after(seconds):
            return await self._persistently(executor, work, tasks)
        await self._stop(executor, work)
        if execution.is_stopped:
            return Outcome(is_cancelled=True, failure=Failure("CANCELLED", "It was stopped"))
        why = self._waits.get(key)
        message = f"It took longer than {step.timeout_seconds:g} seconds{f', and {why}' if why else ''}"
        return Outcome(failure=Failure(TIMEOUT, message))

    async def _persistently(self, executor: StepKindExecutor, work: Work, tasks: TaskGroup) -> Outcome:
        """A failure of ours, such as a full queue, costs time and no attempt."""
        failures, is_checked = 0, work.is_resumed
        while True:
            try:
                if not is_checked and not await has_rights(self._central, work.run.owner):
                    message = f"The access token with which {work.run.owner.name} began the run is no longer valid"
                    return Outcome(failure=Failure("NOT_AUTHORIZED", message), is_final=True)
                is_checked = True
                if failures == 0 and not work.item.reason:
                    return await executor.carry_out(work)
                with self._beginning(work, tasks):
                    return await executor.carry_out(work)
            except LeaseLost:
                raise
            except TransientError as error:
                failures += 1
                log.info("step waits", run=work.run.id, step=work.step.name, why=str(error))
                self._note_wait((work.step.name, work.number), f"waits: {error}")
                await anyio.sleep(max(RETRY.ceiling_seconds(failures), min(error.retry_after_seconds, 30.0)))
            except HomeportError as error:
                code = error.code.upper().replace("-", "_")
                return Outcome(failure=Failure(code, str(error)), is_final=not isinstance(error, NoNodeFits))

    @contextmanager
    def _beginning(self, work: Work, tasks: TaskGroup) -> Iterator[None]:
        """A try after one that had to wait, perhaps before central was restarted."""
        scope = anyio.CancelScope()

        async def clear() -> None:
            with scope:
                await anyio.sleep(BEGUN_SECONDS)
                self._note_wait((work.step.name, work.number), "")

        tasks.start_soon(clear)
        try:
            yield
        finally:
            scope.cancel()

    def _note_wait(self, key: ItemKey, why: str) -> None:
        self._waits[key] = why
        if self._run.step(key[0]).items[key[1]].reason != why:
            self._bell.set()

    async def _stop(self, executor: StepKindExecutor, work: Work) -> None:
        with anyio.move_on_after(STOP_SECONDS):
            try:
                await executor.stop(work)
            except HomeportError as error:
                log.warning("step not stopped", run=work.run.id, step=work.step.name, why=str(error))


def _taken(
    pipeline: Pipeline,
    run: Run,
    key: ItemKey,
    outcome: Outcome,
    results: Mapping[ItemKey, ItemResult],
    *,
    attempt: int,
    now: datetime,
) -> tuple[Run, ItemResult]:
    """The run after an attempt, and what the item has left so far: the log of all attempts, the newest output."""
    before = {other: result for other, result in results.items() if other != key}
    after = finished(pipeline, run, key, outcome, results=before, now=now)
    item = after.step(key[0]).items[key[1]]
    is_kept = item.failure is None or item.failure.code != TOO_LARGE
    said = outcome.result.log
    if outcome.failure is not None:
        said = f"{said.rstrip()}\n{outcome.failure}\n".lstrip()
    text = results.get(key, NO_RESULT).log + attempt_head(pipeline.step(key[0]), attempt) + said
    return after, ItemResult(outcome.result.output if is_kept else None, _end_of(text))


def attempt_head(step: PipelineStep, attempt: int) -> str:
    """What stands before the log of an attempt."""
    return f"--- attempt {attempt} ---\n" if attempt > 1 or step.retries else ""


def _end_of(text: str) -> str:
    if len(text) <= LOG_BYTES_MAX:
        return text
    return f"… the beginning is not kept …\n{text[-LOG_BYTES_MAX:]}"
