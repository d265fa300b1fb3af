"""Runs one admitted task of `/v2`: waits for its slot, streams from the engine, retries once before the first token,
and says how it ended."""

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import anyio

from homeport.core.inference.deadlines import decode_ms_left, on_time_probability
from homeport.core.inference.settings import InferenceSettings
from homeport.core.inference.task import Refusal, Task, TaskCode, TaskRefused, WorkloadKind
from homeport.errors import TransientError
from homeport.inference.metrics import InferenceMetrics
from homeport.inference.pools.preparation import completed
from homeport.inference.pools.replica import Replica
from homeport.inference.tasks.journal import TaskJournal
from homeport.inference.tasks.narration import Narrator
from homeport.inference.tasks.scheduler import Scheduler, Ticket
from homeport.inference.tasks.sessions import Sessions
from homeport.inference.tasks.stream import TaskStream
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports.engine import EngineFailed, Finished, Generation, TokenTexts

log = get_log("homeport.inference")

METRICS_SECONDS: Final = 1.0
"""Between two frames of metrics in a stream; the first follows the first token."""


@dataclass(eq=False, slots=True)
class TaskRun:
    """A task from its admission to its end."""

    ticket: Ticket
    _stream: TaskStream | None = None
    scope: anyio.CancelScope | None = None
    """Where it runs: thousands may wait, and none of them needs one until then."""
    cancel_reason: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    first_token_at: float | None = None
    retried: bool = False
    error: Refusal | None = None
    replica_key: tuple[str, str] | None = None
    engine: tuple[str, str] = ("", "")
    """Name and version of the one that ran it last."""
    decode_ms: int = 0
    ended_at: float | None = None
    artifact_id: str | None = None
    readers: int = 0
    """Of its submitter: it is cancelled when the last one leaves."""

    @property
    def task(self) -> Task:
        return self.ticket.task

    @property
    def stream(self) -> TaskStream:
        """Made when it is asked for: thousands may wait, and most have no reader until they begin."""
        if self._stream is None:
            self._stream = TaskStream()
        return self._stream

    def cancel(self, reason: str) -> None:
        """No token follows once this has returned."""
        if not self.stream.is_over and not self.cancel_reason:
            self.cancel_reason = reason
            self.stream.silence()
            self._stop()
            self.ticket.moved()

    def abort(self, refusal: Refusal) -> None:
        """Ends it as failed while it runs."""
        if not self.stream.is_over and not self.cancel_reason:
            self.error = refusal
            self._stop()

    def _stop(self) -> None:
        if self.scope is not None:
            self.scope.cancel()

    def open_scope(self) -> anyio.CancelScope:
        """To run it in. Cancelled already where it was ended before it began."""
        self.scope = anyio.CancelScope()
        if self.cancel_reason or self.error is not None:
            self.scope.cancel()
        return self.scope


@dataclass(frozen=True, slots=True)
class Runner:
    scheduler: Scheduler
    journal: TaskJournal
    sessions: Sessions
    metrics: InferenceMetrics
    settings: InferenceSettings
    monotonic: Callable[[], float]
    narrator: Narrator

    async def run(self, run: TaskRun) -> None:
        """Ends the stream with exactly one `end` or `error`, whatever happens. Raises nothing but cancellation.

        When Homeport stops, a task that still waits is not ended: it is queued again after the start.
        """
        is_stopping = False
        try:
            with run.open_scope(), anyio.fail_after(self.seconds_left(run)):
                await self._attempts(run)
        except TaskRefused as refused:
            run.error = refused.refusal
        except TimeoutError:
            run.error = self._timeout(run)
        except TransientError as error:
            run.error = Refusal(TaskCode.INTERNAL, str(error))
        except anyio.get_cancelled_exc_class():
            is_stopping = True
            run.error = Refusal(TaskCode.WORKER_RESET, "Homeport is being stopped.", retry_after_ms=1000)
            raise
        except Exception:
            log.exception("task failed with an internal error", job_id=run.task.task_id)
            run.error = Refusal(TaskCode.INTERNAL, "Homeport failed to run the task; its log has the details.")
        finally:
            replica = run.ticket.replica
            if replica is not None:
                replica.breaker = replica.breaker.abandoned()
            self.scheduler.release(run.ticket)
            if run.cancel_reason:
                self.metrics.canceled(run.ticket, run.cancel_reason)
            if not is_stopping or run.replica_key is not None:
                self._say_end(run)

    async def _attempts(self, run: TaskRun) -> None:
        failed: tuple[Replica, EngineFailed] | None = None
        while True:
            replica = await run.ticket.wait()
            if self.seconds_left(run) <= 0:
                raise TaskRefused(_LATE)
            run.replica_key, run.engine = replica.key, (replica.handoff.engine.value, replica.engine_version)
            self.narrator.placed(run.ticket)
            try:
                await self._attempt(run, replica)
            except EngineFailed as error:
                self.scheduler.registry.failed(replica, error)
                refusal = _refusal(error, replica)
                self.scheduler.release(run.ticket)
                # Nothing has reached the client yet, so that another replica may answer in its place.
                is_unseen = run.first_token_at is None
                if is_unseen:
                    run.tokens_in = 0
                can_retry = is_unseen and not run.retried and error.may_go_elsewhere
                if not can_retry or not self.scheduler.again(run.ticket, replica):
                    raise TaskRefused(refusal) from error
                run.retried, failed = True, (replica, error)
                self._of_session(run, lambda session: session.failed_over())
                self.narrator.retried(run.ticket, str(error))
            else:
                replica.breaker = replica.breaker.succeeded()
                if failed is not None and failed[1].may_be_the_request:
                    self.scheduler.registry.blame(*failed)
                return

    async def _attempt(self, run: TaskRun, replica: Replica) -> None:
        task, began = run.task, self.monotonic()
        if not run.retried:
            run.stream.preparation = completed(run.ticket.preparation)
            run.stream.started(_started(run, replica))
        # Overlaps with the engine's work on the prompt; waited for before the first token is shown.
        durable = self.journal.start(task.task_id)
        # Until the engine has counted it; what is cancelled or breaks off has used it, too.
        run.tokens_in = task.prompt_tokens_estimate
        if task.workload is WorkloadKind.COMPLETION:
            await self._complete(run, replica, began, durable)
        else:
            vectors = await self._compute(task, replica)
            await durable
            run.first_token_at = self.monotonic()
            await run.stream.put_tokens(vectors)
        self._measure(run, replica, began)

    async def _complete(self, run: TaskRun, replica: Replica, began: float, durable: Awaitable[None]) -> None:
        task = run.task
        request = Generation(
            model=replica.own_name_of(task.model_ref),
            prompt=task.prompt,
            max_tokens=task.max_tokens,
            seed=task.seed,
            is_deterministic=task.determinism == "strict",
            is_cold=task.kv_hint == "cold",
        )
        async with aclosing(replica.engine.generate(request)) as events:  # type: ignore[type-var]
            # One scope whose deadline moves: entering one for each event costs twice as much.
            with anyio.CancelScope() as idle:
                metrics_at = 0.0
                while True:
                    now = anyio.current_time()
                    if run.first_token_at is not None and now >= metrics_at:
                        metrics_at = now + METRICS_SECONDS
                        self._report(run, self._on_time(run, replica, began))
                    idle.deadline = now + self.settings.idle_seconds
                    event = await anext(events)
                    idle.deadline = math.inf
                    if isinstance(event, Finished):
                        run.tokens_in = event.tokens_in or run.tokens_in
                        run.tokens_out = event.tokens_out if event.tokens_out is not None else run.stream.tokens
                        replica.kept(run.ticket.cache_owner, event.tokens_cached)
                        return
                    if run.first_token_at is None:
                        await durable
                        self._first_token(run, replica, began)
                    await self._hand_over(run, event)
            raise _silent()

    async def _hand_over(self, run: TaskRun, event: TokenTexts) -> None:
        """Waits for the reader while it is behind, not for ever: the slot is needed."""
        if run.stream.add_tokens(list(event.texts)):
            return
        limit = self.settings.slow_client_seconds if run.stream.readers else self.settings.unread_seconds
        with anyio.move_on_after(limit) as waiting:
            await run.stream.wait_for_space()
        if waiting.cancelled_caught:
            raise TaskRefused(Refusal(TaskCode.DECODE_TIMEOUT, f"The stream was not read for {limit:g} seconds."))

    async def _compute(self, task: Task, replica: Replica) -> list[str]:
        with anyio.move_on_after(self.settings.idle_seconds):
            if task.workload is WorkloadKind.RERANK:
                scores = await replica.engine.rerank(replica.own_name_of(task.model_ref), task.prompt, task.inputs)
                return [str(score) for score in scores]
            texts = task.inputs or (task.prompt,)
            return [_vector(each) for each in await replica.engine.embed(replica.own_name_of(task.model_ref), texts)]
        raise _silent()

    # --- what is noted ------------------------------------------------------------------------------------------

    def _first_token(self, run: TaskRun, replica: Replica, began: float) -> None:
        run.first_token_at = now = self.monotonic()
        self.metrics.first_token(replica, run.task.priority, 1000 * (now - run.ticket.since))
        self.narrator.started(run.ticket)
        self._of_session(run, lambda session: session.first_token(replica.key))

    def _measure(self, run: TaskRun, replica: Replica, began: float) -> None:
        now = self.monotonic()
        first = run.first_token_at or now
        if run.first_token_at is not None:
            replica.measured(
                first_token_ms=1000 * (first - began), seconds=now - began, tokens=run.tokens_out or run.stream.tokens
            )
        self.metrics.finished(replica, run.task.priority, decode_ms=1000 * (now - first))

    def _of_session(self, run: TaskRun, change: Callable[[Any], Any]) -> None:
        self.sessions.change(run.ticket.caller, run.task.session_id, change)

    def _say_end(self, run: TaskRun) -> None:
        now = self.monotonic()
        run.ended_at = now
        decode_ms = 0 if run.first_token_at is None else int(1000 * (now - run.first_token_at))
        tokens = run.tokens_out or run.stream.tokens
        run.tokens_out, run.decode_ms = tokens, decode_ms
        self.metrics.used(run.ticket, tokens_in=run.tokens_in, tokens_out=tokens)
        self.sessions.spend(run.ticket.caller, run.task, tokens, decode_ms)
        if run.error is not None and not run.cancel_reason:
            run.stream.error(run.error.to_data())
            return
        if run.stream.tokens:
            self._report(run, 1.0)
        end: dict[str, Any] = {"tokens_out": tokens, "decode_time_ms": decode_ms, "decode_ms": decode_ms}
        run.stream.end({**end, "canceled": True} if run.cancel_reason else end)

    def _report(self, run: TaskRun, on_time: float) -> None:
        """A frame of metrics, which is dropped where the reader is behind. None follows a cancel."""
        if run.cancel_reason:
            return
        session = self.sessions.find(run.ticket.caller, run.task.session_id)
        data = {
            "queue_depth": self.scheduler.depth(run.ticket.pool_id),
            "on_time_probability": on_time,
            "kv_migrated": False,
            **({} if session is None else session.signals()),
        }
        if not run.stream.metrics(data):
            self.metrics.dropped.inc()

    def _on_time(self, run: TaskRun, replica: Replica, began: float) -> float:
        now, first = self.monotonic(), run.first_token_at or began
        needed_ms = decode_ms_left(
            run.task,
            run.stream.tokens,
            decoded_ms=1000 * (now - first),
            first_token_ms=1000 * (first - began),
            rate=replica.tokens_per_second,
        )
        return on_time_probability(left_ms=1000 * self.seconds_left(run), needed_ms=needed_ms)

    def _timeout(self, run: TaskRun) -> Refusal:
        if run.ticket.replica is None:
            return _LATE
        return Refusal(TaskCode.DECODE_TIMEOUT, "The task did not end before its deadline.")

    def seconds_left(self, run: TaskRun) -> float:
        seconds = min(run.task.deadline_ms / 1000, self.settings.wall_seconds)
        return max(0.0, run.ticket.since + seconds - self.monotonic())


_LATE: Final = Refusal(TaskCode.DEADLINE_UNMET, "No slot became free before the deadline.")


def _silent() -> EngineFailed:
    return EngineFailed("The engine did not answer in time.", TaskCode.DECODE_TIMEOUT)


def _started(run: TaskRun, replica: Replica) -> dict[str, Any]:
    ticket, task = run.ticket, run.task
    found = {
        "queue_position": ticket.position,
        "predicted_start_ms": ticket.predicted_start_ms,
        "engine": replica.handoff.engine.value,
        "engine_version": replica.engine_version,
        "pool_id": replica.handoff.pool_id,
        "replica_id": replica.handoff.replica_id,
        "sampler_profile_version": task.sampler_profile_version,
        "seed": task.seed,
    }
    return {name: value for name, value in found.items() if value is not None}


def _refusal(error: EngineFailed, replica: Replica) -> Refusal:
    handoff = replica.handoff
    retry_ms = None if error.task_code is TaskCode.INVALID_PARAMS else 1000
    return Refusal(
        error.task_code, str(error), engine=handoff.engine.value, pool_id=handoff.pool_id, retry_after_ms=retry_ms
    )


def _vector(numbers: Sequence[float]) -> str:
    return "[" + ",".join(f"{number:.9g}" for number in numbers) + "]"
