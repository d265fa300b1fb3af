"""Jobs on a simulated machine: attempts outlive the node, end by themselves, and are killed with the power."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import anyio

from homeport.core.jobs.job import JobType
from homeport.errors import WorkFailed
from homeport.ports import JobRunner, JobRunRequest, OnProgress, RunStatus
from homeport.vocabulary import Code
from tests.simulation.life import Life, MachineClock
from tests.simulation.machine import Attempt, Machine, MachineRuntime

LOOK_SECONDS = 0.5
SECONDS = "SECONDS"
EXIT = "EXIT"
"""Variables of a job: how long it runs, and how it ends."""
KIND = JobType.CONTAINER


class JobMachineRuntime(MachineRuntime):
    """`ports.RunsJobs` too."""

    def __init__(self, life: Life, machine: Machine, clock: MachineClock) -> None:
        super().__init__(life, machine)
        self._clock = clock

    def job_runner(self) -> JobRunner:
        return MachineJobs(self, self._machine, self._clock)


class MachineJobs:
    """`ports.JobRunner`."""

    def __init__(self, runtime: JobMachineRuntime, machine: Machine, clock: MachineClock) -> None:
        self._runtime = runtime
        self._machine = machine
        self._clock = clock

    async def prepare(self, request: JobRunRequest, on_progress: OnProgress) -> None:
        await self._runtime.reach()
        await self._runtime.do(self._machine.chance.uniform(0.05, 1.0))
        if self._machine.registry_down:
            raise WorkFailed(Code.IMAGE_PULL_FAILED, f"{request.image} cannot be pulled")

    async def start(self, request: JobRunRequest) -> None:
        await self._runtime.reach()
        await self._runtime.do(0.02, lambda: self._start(request))

    async def look(self, run_id: str) -> RunStatus | None:
        await self._runtime.reach()
        attempt = self._machine.attempts_of_jobs.get(run_id)
        if attempt is None:
            return None
        passed = anyio.current_time() - attempt.began
        started = self._clock.now() - timedelta(seconds=passed)
        if not attempt.is_stopped and passed < attempt.seconds:
            return RunStatus(True, started_at=started)
        return RunStatus(False, 137 if attempt.is_stopped else attempt.exit_code, started, self._clock.now())

    async def output(self, run_id: str) -> AsyncIterator[bytes]:
        yield f"{run_id}\n".encode()
        while (status := await self.look(run_id)) is not None and status.is_running:  # noqa: ASYNC110 - as engines do
            await anyio.sleep(LOOK_SECONDS)

    async def stop(self, run_id: str) -> None:
        await self._runtime.reach()
        attempt = self._machine.attempts_of_jobs.get(run_id)
        if attempt is not None and anyio.current_time() - attempt.began < attempt.seconds:
            attempt.is_stopped = True

    async def collect(self, run_id: str, path: str, *, bytes_max: int) -> bytes:
        raise WorkFailed(Code.INTERNAL, f"{path} is not there")

    async def remove(self, run_id: str) -> None:
        await self._runtime.reach()
        await self._runtime.do(0.02, lambda: self._machine.attempts_of_jobs.pop(run_id, None))

    async def runs(self) -> Sequence[str]:
        await self._runtime.reach()
        return sorted(self._machine.attempts_of_jobs)

    def _start(self, request: JobRunRequest) -> None:
        if request.id not in self._machine.attempts_of_jobs:
            self._machine.starts[request.id] += 1
            self._machine.attempts_of_jobs[request.id] = Attempt(
                anyio.current_time(), float(request.environment[SECONDS]), int(request.environment[EXIT])
            )
