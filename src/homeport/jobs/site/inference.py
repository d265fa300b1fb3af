"""Inference jobs at a site: the site itself asks its task plane, as `/v2/tasks` would, and follows each to its end.

What a job is, is durable at the board; the task is durable at the plane. The id of the task follows from the job and
its generation, so after a restart the same question finds the same task. One that was interrupted is asked again
under the next generation, so that whoever follows the answer notices that it begins again.
"""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from homeport.core.inference.task import TaskCode
from homeport.core.jobs.job import Job, JobOutcome, JobOutput
from homeport.core.model.caller import Caller, Role
from homeport.core.model.instance import Failure
from homeport.errors import PeerUnavailable, TransientError
from homeport.failpoints import Point, passing
from homeport.fleet.shared.backoff import Backoff
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.node.output import end_of
from homeport.jobs.site.answers import Answers
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import TaskAnswer, TaskAsker
from homeport.vocabulary import Code, JobId

log = get_log(__name__)

AT_ONCE_MAX: Final = 64
"""Inference jobs under way at a site; the others stay pending. The pools have a queue of their own behind it."""
STOP_SECONDS_MAX: Final = 10.0
AGAIN_SECONDS: Final = 1.0
FIND_SECONDS: Final = 5.0
NAMESPACE: Final = uuid.UUID("8b7f0a52-6d58-4b1e-9a5c-0c2f5a1f7e11")


@dataclass(frozen=True, slots=True)
class InferenceEnd:
    """How an attempt ended. Neither outcome nor failure: it was stopped."""

    outcome: JobOutcome | None = None
    failure: Failure | None = None
    is_final: bool = False
    is_interrupted: bool = False
    """By a restart, of the site or of the engine: it may be asked again within the same attempt."""


class InferenceRuns:
    """Used by the board, which is told when an attempt has begun and when it has ended."""

    def __init__(
        self,
        platform: SitePlatform,
        on_begun: Callable[[Job], Awaitable[None]],
        on_ended: Callable[[Job, InferenceEnd], Awaitable[None]],
        answers: Answers,
    ) -> None:
        self._platform = platform
        self._answers = answers
        self._on_begun = on_begun
        self._on_ended = on_ended
        self._scopes: dict[JobId, anyio.CancelScope] = {}
        self.waiting: dict[JobId, str] = {}
        """Why those that are not admitted yet are not."""
        self.tasks: TaskGroup | None = None

    @property
    def room(self) -> int:
        """How many more may begin; none before the role runs."""
        return 0 if self.tasks is None else max(0, AT_ONCE_MAX - len(self._scopes))

    def carry_on(self, job: Job) -> None:
        """Begins an attempt, finds it again after a restart, or stops it. Repeating it is harmless."""
        if job.id in self._scopes:
            if job.cancelled_by is not None:
                self._scopes[job.id].cancel()
        elif self.tasks is not None:
            self._scopes[job.id] = scope = anyio.CancelScope()
            self.tasks.start_soon(self._run, job, scope)

    async def _run(self, job: Job, scope: anyio.CancelScope) -> None:
        end = InferenceEnd()
        try:
            with scope:
                if job.cancelled_by is None:
                    end = await self._asked(job)
            if end.outcome is None:
                await self._stop(job)
            self._answers.end(job.id)
            await self._on_ended(job, end)
        except TransientError as error:
            # The board finds it open at its next round, and the plane has its answer.
            log.warning("end of an inference job not recorded, will retry", job=job.id, why=str(error))
            await anyio.sleep(AGAIN_SECONDS)
        finally:
            self._answers.end(job.id)
            self._scopes.pop(job.id, None)
            self.waiting.pop(job.id, None)

    async def _asked(self, job: Job) -> InferenceEnd:
        with anyio.move_on_after(_seconds_left(job, self._platform.clock.now())):
            return self._ended(await self._ask(job))
        why = self.waiting.get(job.id)
        await self._stop(job)
        message = f"The request was not answered within {job.spec.timeout_seconds:g} s"
        failure = Failure(Code.TIMEOUT, f"{message}: {why}" if why else f"{message}.")
        return InferenceEnd(JobOutcome(finished_at=self._platform.clock.now()), failure)

    async def _ask(self, job: Job) -> TaskAnswer:
        """Until it is admitted: a full queue and an engine that is being started are waited for."""
        assert job.spec.inference is not None, "the rules of jobs say so"
        backoff = Backoff()
        while True:
            try:
                return await self._plane().ask(
                    job.spec.inference,
                    _caller(job),
                    task_id=_task_id(job),
                    timeout_seconds=job.spec.timeout_seconds,
                    on_submitted=partial(self._submitted, job),
                    on_text=self._answers.begin(job),
                    restarts_max=0,
                )
            except PeerUnavailable as error:
                self.waiting[job.id] = str(error)
                await anyio.sleep(backoff.next_seconds())

    def _submitted(self, job: Job) -> None:
        passing(Point.JOB_AFTER_START)
        self.waiting.pop(job.id, None)
        assert self.tasks is not None, "it runs in it"
        self.tasks.start_soon(self._begin, job)

    async def _begin(self, job: Job) -> None:
        try:
            await self._on_begun(job)
        except TransientError as error:
            log.warning("start of an inference job not recorded", job=job.id, why=str(error))

    async def _stop(self, job: Job) -> None:
        with suppress(PeerUnavailable), anyio.move_on_after(STOP_SECONDS_MAX, shield=True):
            await self._plane().cancel(_task_id(job), _caller(job))

    def _plane(self) -> TaskAsker:
        if self._platform.inference.tasks is None:
            raise PeerUnavailable("This site serves no inference.")
        return self._platform.inference.tasks

    def _ended(self, answer: TaskAnswer) -> InferenceEnd:
        text = answer.text if answer.text.endswith("\n") or not answer.text else f"{answer.text}\n"
        outcome = JobOutcome(
            output=JobOutput(end_of(text), len(text.encode())),
            note=f"{answer.tokens_in} tokens in, {answer.tokens_out} out, on {answer.replica}",
            finished_at=self._platform.clock.now(),
        )
        if not answer.error_code:
            return InferenceEnd(outcome)
        code = Code.TIMEOUT if answer.error_code == TaskCode.DECODE_TIMEOUT else answer.error_code
        return InferenceEnd(
            outcome,
            Failure(code, answer.error),
            is_final=not answer.is_retriable,
            is_interrupted=answer.error_code == TaskCode.WORKER_RESET,
        )


def _seconds_left(job: Job, now: datetime) -> float:
    """Of the attempt, waiting for an engine included. After a restart at least what it takes to find its answer."""
    passed = 0.0 if job.assigned_at is None else (now - job.assigned_at).total_seconds()
    return max(FIND_SECONDS, job.spec.timeout_seconds - passed)


def _task_id(job: Job) -> str:
    return str(uuid.uuid5(NAMESPACE, f"{job.site}/{job.id}/{job.generation}"))


def _caller(job: Job) -> Caller:
    """Who submitted the job owns its task: its use is counted there."""
    return Caller(job.created_by, Role.VIEWER)
