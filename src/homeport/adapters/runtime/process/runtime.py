"""Runs native programs: components of profile `custom` with

    x-homeport-extensions: {process: {command: [...], args: [...], environment: {...}, workdir: DIR, health: {...}}}

A program outlives the node: its own keeper process has its log and its exit code, and files in our data folder
identify the process. It runs as the node's user, without any confinement.
"""

import json
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

import anyio

from homeport.adapters.files.file_events import FileEvents
from homeport.adapters.runtime.custom_spec import environment_of, read_spec
from homeport.adapters.runtime.failures import create_failed, disk_full
from homeport.adapters.runtime.health.probes import checked, run_probe
from homeport.adapters.runtime.process import program_keeper
from homeport.adapters.runtime.process.files import ProcessFolder, Program, boot_id, read_program
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.follow_file import follow_file
from homeport.adapters.runtime.programs.tail import last_lines
from homeport.core.model.custom import CustomKind
from homeport.core.model.health import ContainerRun, ContainerState, HealthSample
from homeport.core.secrets import masked, secret_environment, secret_files
from homeport.errors import WorkFailed
from homeport.failpoints import Point, passing
from homeport.ports import Container, IsDue, Observation, OnProgress, OutputLine, Workload, WorkloadProcess
from homeport.vocabulary import Code, DeploymentId, Digest, ProfileType, Step

LOG_BYTES_MAX = 10 * 1024 * 1024
STOP_SECONDS = 10.0
START_SECONDS = 15.0
KEEPER_SECONDS = 2.0
KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TZ")


class ProcessRuntime:
    name = "process"
    profile_types: tuple[ProfileType, ...] = (ProfileType.CUSTOM,)

    def __init__(
        self, data: Path, environment: Mapping[str, str], variables: Mapping[str, str] | None = None
    ) -> None:
        self._folder = data / "process"
        self._file_events = FileEvents()
        self._environment = {name: environment[name] for name in KEPT_VARIABLES if name in environment}
        self._environment |= variables or {}

    async def start(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def close(self) -> None:
        """Programs are children of their keepers, not of the node."""

    async def version(self) -> str:
        return "1"

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        spec = workload.spec
        if spec.type not in self.profile_types:
            message = f"The process runtime runs custom components; {spec.name} is of type {spec.type}."
            raise WorkFailed(Code.UNSUPPORTED_TYPE, message, source=spec.name)
        read_spec(spec, CustomKind.PROCESS)
        if secret_files(spec):
            message = f"{spec.name} is a program of this machine: its secrets can be variables, not files."
            raise WorkFailed(Code.CREATE_FAILED, message, source=spec.name)

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        await self.prepare(workload, on_progress)
        folder = self._of(workload.deployment_id, workload.spec.name)
        program = read_program(folder)
        if program is not None and program.is_running:
            if program.digest == workload.spec.digest:
                return
            on_progress(Step.STOPPING, f"stopping the running {workload.spec.name}", 0, 0)
            await self._stop(program, folder, workload.spec.name)
            passing(Point.RUNTIME_AFTER_STOP)
        on_progress(Step.CREATING, f"creating {workload.spec.name}", 0, 0)
        on_progress(Step.STARTING, f"starting {workload.spec.name}", 0, 0)
        await self._launch(workload, folder)
        passing(Point.RUNTIME_AFTER_CREATE)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        parent = self._folder / deployment_id
        folders = sorted(parent.iterdir()) if parent.is_dir() else []
        programs = ((unquote(path.name), read_program(ProcessFolder(path))) for path in folders)
        return [_observation(component, program) for component, program in programs if program is not None]

    async def processes(self, known: Mapping[str, WorkloadProcess]) -> Sequence[WorkloadProcess]:
        paths = sorted(self._folder.glob("*/*")) if self._folder.is_dir() else []
        found = ((path, read_program(ProcessFolder(path))) for path in paths)
        return [
            WorkloadProcess(
                program.id, DeploymentId(path.parent.name), unquote(path.name), unquote(path.name), program.pid
            )
            for path, program in found
            if program is not None and program.is_running
        ]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        spec, process = workload.spec, read_spec(workload.spec, CustomKind.PROCESS)
        program = read_program(self._of(workload.deployment_id, spec.name))
        if program is None:
            return ()
        seen = HealthSample(spec.name, ContainerRun(program.id, program.started_at))
        if not program.is_running:
            message = "" if program.exit_code is not None else "it ended with an unknown exit code"
            return (replace(seen, state=ContainerState.STOPPED, exit_code=program.exit_code, message=message),)
        if process.probe is None:
            return (seen,)
        run = partial(
            run_probe,
            process.probe,
            seconds=process.rules.timeout_seconds,
            environment={**self._environment, **environment_of(spec, process), **secret_environment(spec)},
        )
        return (await checked(seen, process.rules, is_due, run),)

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        log = self._of(workload.deployment_id, workload.spec.name).log
        for line in last_lines((log.with_name(log.name + ".1"), log), tail):
            yield line

    async def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        path = self._of(workload.deployment_id, workload.spec.name).log
        async for lines in follow_file(path, resume, self._file_events):
            yield lines

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        folder = self._of(deployment_id, component)
        program = read_program(folder)
        if program is not None:
            await self._stop(program, folder, component)
        folder.remove()
        parent = folder.path.parent
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()

    def _of(self, deployment_id: DeploymentId, component: str) -> ProcessFolder:
        return ProcessFolder(self._folder / deployment_id / quote(component, safe=""))

    async def _launch(self, workload: Workload, folder: ProcessFolder) -> None:
        spec, process = workload.spec, read_spec(workload.spec, CustomKind.PROCESS)
        workdir = Path(process.workdir) if process.workdir else workload.folder
        config = {
            "command": [*process.command, *process.args],
            "workdir": str(workdir),
            "environment": {**self._environment, **environment_of(spec, process)},
            "state": str(folder.state),
            "exit": str(folder.exit),
            "log": str(folder.log),
            "log_bytes_max": LOG_BYTES_MAX,
            "identity": {
                "digest": spec.digest,
                "boot_id": boot_id(),
                "started_at": datetime.now(UTC).isoformat(),
            },
        }
        try:
            workload.folder.mkdir(parents=True, exist_ok=True)
            folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (folder.exit, folder.state, folder.log):
                path.unlink(missing_ok=True)
            folder.config.touch(mode=0o600)
            folder.config.write_text(json.dumps(config))
        except OSError as error:
            raise disk_full(spec.name) from error
        # Secrets go from environment to environment and are in no file.
        hidden = {program_keeper.SECRET + name: value for name, value in secret_environment(spec).items()}
        keeper = [sys.executable, "-I", "-S", str(program_keeper.__file__), str(folder.config)]
        # Shielded: a program whose state file is not written yet would be lost to us.
        with anyio.CancelScope(shield=True):
            done = await child_process.run(keeper, environment=self._environment | hidden, seconds=START_SECONDS)
        if done.exit_code != 0:
            folder.state.unlink(missing_ok=True)
            lines = done.errors.strip().splitlines()
            reason = lines[-1] if lines else "it gave no reason"
            raise create_failed(spec.name, masked(reason, spec.secret_values.values()))

    async def _stop(self, program: Program, folder: ProcessFolder, component: str) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            program.signal(number)
            if await _becomes(lambda: not program.is_running, seconds=STOP_SECONDS):
                # The keeper still has to write its last line, and would write it into the next program's folder.
                await _becomes(folder.exit.exists, seconds=KEEPER_SECONDS)
                return
        message = f"{component} (process {program.pid}) does not end, even when killed."
        raise WorkFailed(Code.REMOVE_FAILED, message, source=component)


async def _becomes(true: Callable[[], bool], *, seconds: float) -> bool:
    """Polls: there is no notification about a process that is not our child."""
    deadline = anyio.current_time() + seconds
    while not (answer := true()) and anyio.current_time() < deadline:  # noqa: ASYNC110 - see above
        await anyio.sleep(0.02)
    return answer


def _observation(component: str, program: Program) -> Observation:
    container = Container(
        id=program.id,
        name=component,
        running=program.is_running,
        exit_code=program.exit_code,
        started_at=program.started_at,
    )
    return Observation(component=component, digest=Digest(program.digest), containers=(container,))
