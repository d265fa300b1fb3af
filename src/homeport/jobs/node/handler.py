"""Carries out orders for jobs: runs an attempt to its end, or stops one.

An attempt outlives the node: after a restart its container or process is found again by its id, and waited for. It is
removed only when its result is durable; removed earlier, a crash in between would start it a second time.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

import anyio

from homeport.capability.node import Done, NodePlatform
from homeport.core.jobs.exit_codes import exit_message
from homeport.core.jobs.job import JOB, JobFile, JobOutcome, JobOutput, JobSpec, JobType
from homeport.core.jobs.rules import ARTIFACT_BYTES_MAX
from homeport.core.jobs.steps import PREPARE_SECONDS_MAX
from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Progress, Result
from homeport.core.node.entry import JournalEntry
from homeport.core.secrets import masked, secret_environment, secret_values
from homeport.errors import EngineUnavailable, HomeportError, InvalidInput, TransientError, WorkFailed
from homeport.failpoints import Point, passing
from homeport.jobs.node.output import OutputReader, position_of
from homeport.log import get_log
from homeport.ports import JobRunner, JobRunRequest, RunStatus
from homeport.vocabulary import Code, OrderKind, Step
from homeport.wire.jobs import outcome_to_bytes, spec_from_json
from homeport.wire.values import document

log = get_log("homeport.node")

RunnerOf = Callable[[JobType], JobRunner]
"""What runs jobs of a type here. Raises WorkFailed with NOT_ALLOWED or UNSUPPORTED_TYPE."""

ENGINE_PAUSE_SECONDS: Final = 1.0
ENGINE_SECONDS_MAX: Final = 120.0
"""How long an engine may be unreachable before an attempt on it is given up."""
END_SECONDS_MAX: Final = 30.0
LAST_SECONDS_MAX: Final = 5.0
"""How long the output of an attempt that was stopped may take to read."""
POLL_SECONDS_MAX: Final = 1.0
SWEEP_SECONDS: Final = 600.0


class JobHandler:
    def __init__(self, platform: NodePlatform, runner_of: RunnerOf) -> None:
        self._platform = platform
        self._runner_of = runner_of
        self._outputs: dict[str, OutputReader] = {}
        """Of attempts that this process runs, or has just stopped running, by their id."""

    def accepted(self, order: Order) -> None:
        self._tell(order, Step.ACCEPTED, order.reason)

    async def carry_out(self, entry: JournalEntry) -> Done:
        order = entry.order
        try:
            if order.kind is OrderKind.REMOVE:
                return await self._stop(order)
            return await self._run(order)
        except WorkFailed as error:
            return self._failed(order, Failure(error.code, str(error), error.source))
        except InvalidInput as error:
            return self._failed(order, Failure(Code.INVALID_ORDER, str(error)))
        except EngineUnavailable as error:
            message = f"{error} {error.hint or ''}".strip()
            return self._failed(order, Failure(Code.ENGINE_UNREACHABLE, message))
        except Exception as error:
            # Last resort for this order: it must not end the workers of others.
            log.exception("job failed with an internal error", job=order.deployment_id)
            return self._failed(order, Failure(Code.INTERNAL, f"{type(error).__name__}: {error}"))

    async def give_up(self, entry: JournalEntry, failure: Failure) -> Done:
        await self._discard(entry.order)
        return self._failed(entry.order, failure)

    async def refused(self, order: Order, failure: Failure, entry: JournalEntry | None) -> Result:
        return self._failed(order, failure).result

    async def sweep(self) -> None:
        """Removes attempts whose result is durable, and that a crash has left behind."""
        for type_ in (JobType.CONTAINER, JobType.COMMAND):
            try:
                runner = self._runner_of(type_)
            except WorkFailed:
                continue  # Nothing of this type runs here.
            try:
                for run_id in await runner.runs():
                    if run_id not in {run_id_of(item.id, item.generation) for item in self._platform.unfinished(JOB)}:
                        await runner.stop(run_id)
                        await runner.remove(run_id)
            except HomeportError as error:
                log.info("leftovers of jobs not removed", type=type_.value, why=str(error))

    async def sweep_often(self) -> None:
        while True:
            await self.sweep()
            await anyio.sleep(SWEEP_SECONDS)

    # --- running ----------------------------------------------------------------------------------------------

    async def _run(self, order: Order) -> Done:
        spec = _spec(order)
        runner = self._runner_of(spec.type)
        request = _request(order, spec)
        status = await runner.look(request.id)
        if status is None:
            with anyio.move_on_after(PREPARE_SECONDS_MAX) as limit:
                await runner.prepare(request, partial(self._on_progress, order))
            if limit.cancelled_caught:
                raise WorkFailed(Code.TIMEOUT, "The image could not be pulled in time.")
            await runner.start(request)
            passing(Point.JOB_AFTER_START)
            status = await runner.look(request.id)
        started = (status.started_at if status else None) or self._platform.clock.now()
        self._tell(order, Step.STARTING, "started", at=started)
        output = self._outputs[request.id] = await self._output(order)
        status, is_late = await self._wait(runner, request, spec, output, started)
        outcome = await self._outcome(runner, request.id, spec, output.end(), status)
        outcome = replace(outcome, started_at=started)
        self._outputs.pop(request.id, None)
        passing(Point.JOB_AFTER_END)
        clean_up = partial(self._clean_up, runner, order)
        failure = _failure(spec, status, is_late=is_late)
        return Done(self._result(order, failure, outcome), clean_up=clean_up)

    async def _output(self, order: Order) -> OutputReader:
        source, logs = f"{JOB}/{order.deployment_id}", self._platform.logs
        try:
            sent = int(await logs.position(position_of(source, order.generation)) or 0)
        except TransientError as error:
            log.warning("log read failed", error=str(error))
            sent = 0
        secrets = secret_values(order.release)
        return OutputReader(source, order.generation, secrets, self._platform.clock, logs.put_logs, sent=sent)

    async def _wait(
        self, runner: JobRunner, request: JobRunRequest, spec: JobSpec, output: OutputReader, started: datetime
    ) -> tuple[RunStatus | None, bool]:
        """Until it ends, or its time is over: then it is killed. Returns how it ended, and whether it was killed."""
        passed = (self._platform.clock.now() - started).total_seconds()
        with anyio.move_on_after(max(0.0, spec.timeout_seconds - passed)) as limit:
            return await self._follow(runner, request, output), False
        assert limit.cancelled_caught
        await runner.stop(request.id)
        with anyio.move_on_after(END_SECONDS_MAX):
            # What it printed last is still to be read.
            output.restart()
            return await self._follow(runner, request, output), True
        return await runner.look(request.id), True

    async def _follow(self, runner: JobRunner, request: JobRunRequest, output: OutputReader) -> RunStatus | None:
        """Follows its output until it ends. An engine that is restarted meanwhile is waited for."""
        deadline: float | None = None
        while True:
            try:
                async for chunk in runner.output(request.id):
                    output.feed(chunk)
                    deadline = None
                return await _ended(runner, request.id)
            except EngineUnavailable:
                now = anyio.current_time()
                deadline = deadline or now + ENGINE_SECONDS_MAX
                if now > deadline:
                    raise
                await anyio.sleep(ENGINE_PAUSE_SECONDS)
                output.restart()

    async def _outcome(
        self,
        runner: JobRunner,
        run_id: str,
        spec: JobSpec,
        output: JobOutput,
        status: RunStatus | None,
    ) -> JobOutcome:
        files: list[JobFile] = []
        notes: list[str] = []
        left = ARTIFACT_BYTES_MAX
        for path in spec.artifacts:
            try:
                content = await runner.collect(run_id, path, bytes_max=left)
            except WorkFailed as error:
                notes.append(str(error))
                continue
            left -= len(content)
            files.append(JobFile(path, content))
        return JobOutcome(
            exit_code=None if status is None else status.exit_code,
            output=output,
            files=tuple(files),
            note=" ".join(notes),
            finished_at=(status.finished_at if status else None) or self._platform.clock.now(),
        )

    # --- stopping ---------------------------------------------------------------------------------------------

    async def _stop(self, order: Order) -> Done:
        """Stops the attempt of the job that runs here, and keeps what it prints while it stops."""
        outcome = await self._discard(order)
        return Done(self._result(order, None, outcome))

    async def _discard(self, order: Order) -> JobOutcome:
        output = JobOutput()
        for type_ in (JobType.CONTAINER, JobType.COMMAND):
            try:
                runner = self._runner_of(type_)
            except WorkFailed:
                continue
            for run_id in await runner.runs():
                if run_id.rpartition(".")[0] == order.deployment_id:
                    await runner.stop(run_id)
                    output = await self._last_output(runner, run_id)
                    await self._remove(runner, run_id)
        return JobOutcome(output=output, finished_at=self._platform.clock.now())

    async def _last_output(self, runner: JobRunner, run_id: str) -> JobOutput:
        """Nothing where another process of the node began it: this one does not know which secrets it was given."""
        reader = self._outputs.pop(run_id, None)
        if reader is None:
            return JobOutput()
        reader.restart()
        try:
            with anyio.move_on_after(LAST_SECONDS_MAX):
                async for chunk in runner.output(run_id):
                    reader.feed(chunk)
        except HomeportError as error:
            log.info("end of a stopped job's output not read", run=run_id, why=str(error))
        return reader.end()

    async def _clean_up(self, runner: JobRunner, order: Order) -> None:
        await self._remove(runner, run_id_of(order.deployment_id, order.generation))
        try:
            await self._platform.logs.forget_positions(
                [position_of(f"{JOB}/{order.deployment_id}", order.generation)]
            )
        except HomeportError as error:
            log.warning("log write failed", error=str(error))

    async def _remove(self, runner: JobRunner, run_id: str) -> None:
        """What cannot be removed now is removed by a later sweep."""
        try:
            await runner.remove(run_id)
        except HomeportError as error:
            log.warning("leftovers of a job not removed", run=run_id, why=str(error))

    # --- reporting --------------------------------------------------------------------------------------------

    def _failed(self, order: Order, failure: Failure) -> Done:
        failure = Failure(failure.code, masked(failure.message, secret_values(order.release)), failure.source)
        return Done(self._result(order, failure, JobOutcome(finished_at=self._platform.clock.now())))

    def _result(self, order: Order, failure: Failure | None, outcome: JobOutcome) -> Result:
        return Result(
            deployment_id=order.deployment_id,
            generation=order.generation,
            kind=order.kind,
            succeeded=failure is None,
            at=self._platform.clock.now(),
            failure=failure,
            deleted=order.kind is OrderKind.REMOVE and failure is None,
            exit_code=outcome.exit_code or 0,
            work=JOB,
            content=outcome_to_bytes(outcome),
        )

    def _on_progress(self, order: Order, step: str, message: str, done: int, total: int) -> None:
        self._tell(order, Step(step), message, bytes_done=done, bytes_total=total)

    def _tell(
        self,
        order: Order,
        step: Step,
        message: str,
        *,
        at: datetime | None = None,
        bytes_done: int = 0,
        bytes_total: int = 0,
    ) -> None:
        self._platform.progress(
            Progress(
                order.deployment_id,
                order.generation,
                step,
                "",
                message,
                at or self._platform.clock.now(),
                bytes_done=bytes_done,
                bytes_total=bytes_total,
                work=JOB,
            )
        )


def run_id_of(job_id: str, generation: int) -> str:
    return f"{job_id}.{generation}"


def _spec(order: Order) -> JobSpec:
    try:
        body = document(order.content)
    except ValueError as error:
        raise InvalidInput(f"The order has no readable description of the job: {error}.") from error
    return spec_from_json(body if isinstance(body, Mapping) else {})


def _request(order: Order, spec: JobSpec) -> JobRunRequest:
    parts = order.release.components if order.release else ()
    return JobRunRequest(
        id=run_id_of(order.deployment_id, order.generation),
        command=spec.command,
        image=spec.image,
        entrypoint=spec.entrypoint,
        environment=dict(spec.environment),
        secrets={name: value for part in parts for name, value in secret_environment(part).items()},
        cpu_cores=spec.cpu_cores,
        memory_bytes=spec.memory_bytes,
        gpus=spec.gpus,
    )


def _failure(spec: JobSpec, status: RunStatus | None, *, is_late: bool) -> Failure | None:
    if is_late:
        return Failure(Code.TIMEOUT, f"The job did not end within {spec.timeout_seconds:g} s and was killed.")
    if status is None or status.exit_code is None:
        message = "The job ended without an exit code: the machine was restarted, or it was removed by hand."
        return Failure(Code.NODE_CRASHED, message)
    if status.exit_code != 0:
        return Failure(Code.EXITED, exit_message(status.exit_code, spec.memory_bytes))
    return None


async def _ended(runner: JobRunner, run_id: str) -> RunStatus | None:
    """Its output has ended, so it is about to end too, unless it has closed its output and goes on."""
    pause = 0.01
    while (status := await runner.look(run_id)) is not None and status.is_running:
        await anyio.sleep(pause)
        pause = min(pause * 2, POLL_SECONDS_MAX)
    return status
