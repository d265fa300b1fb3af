"""Jobs that are commands of the machine. A keeper process is the parent of each, with its output and exit code, so
that it outlives the node; files in the node's folder identify it. It runs as the node's user, in a folder of its own,
without any confinement."""

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import anyio

from homeport.adapters.runtime.failures import create_failed, disk_full
from homeport.adapters.runtime.process import program_keeper
from homeport.adapters.runtime.process.files import ProcessFolder, boot_id, read_program
from homeport.adapters.runtime.programs import child_process
from homeport.core.secrets import masked
from homeport.errors import WorkFailed
from homeport.ports import JobRunRequest, OnProgress, RunStatus
from homeport.vocabulary import Code

LOG_BYTES_MAX: Final = 10 * 1024 * 1024
START_SECONDS: Final = 15.0
STOP_SECONDS: Final = 10.0
KEEPER_SECONDS: Final = 2.0
POLL_SECONDS: Final = 0.05
CHUNK_BYTES: Final = 64 * 1024
KEPT_VARIABLES: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TZ")
SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class ProcessJobs:
    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {name: environment[name] for name in KEPT_VARIABLES if name in environment}

    async def prepare(self, request: JobRunRequest, on_progress: OnProgress) -> None:
        pass

    async def start(self, request: JobRunRequest) -> None:
        folder = self._of(request.id)
        if read_program(folder) is not None:
            return
        work = folder.path / "work"
        config = {
            "command": list(request.command),
            "workdir": str(work),
            "environment": {**self._environment, **request.environment},
            "state": str(folder.state),
            "exit": str(folder.exit),
            "log": str(folder.log),
            "log_bytes_max": LOG_BYTES_MAX,
            "identity": {"digest": "", "boot_id": boot_id(), "started_at": datetime.now(UTC).isoformat()},
        }
        try:
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.config.touch(mode=0o600)
            folder.config.write_text(json.dumps(config))
        except OSError as error:
            raise disk_full("the job") from error
        hidden = {program_keeper.SECRET + name: value for name, value in request.secrets.items()}
        keeper = [sys.executable, "-I", "-S", str(program_keeper.__file__), str(folder.config)]
        # Shielded: a program whose state file is not written yet would be lost to us.
        with anyio.CancelScope(shield=True):
            done = await child_process.run(keeper, environment=self._environment | hidden, seconds=START_SECONDS)
        if done.exit_code != 0:
            folder.remove()
            lines = done.errors.strip().splitlines()
            reason = lines[-1] if lines else "it gave no reason"
            raise create_failed("the job", masked(reason, request.secrets.values()))

    async def look(self, run_id: str) -> RunStatus | None:
        folder = self._of(run_id)
        program = read_program(folder)
        if program is None:
            return None
        started = datetime.fromisoformat(program.started_at)
        if program.is_running:
            return RunStatus(True, started_at=started)
        if program.exit_code is None and program.boot_id == boot_id():
            # The keeper is about to write the exit code.
            await _until(folder.exit.exists, KEEPER_SECONDS)
            program = read_program(folder) or program
        return RunStatus(False, program.exit_code, started, _changed_at(folder.exit))

    async def output(self, run_id: str) -> AsyncIterator[bytes]:
        """Follows the log across its rotation. What it has already lost by then is skipped."""
        folder = self._of(run_id)
        file: IO[bytes] | None = None
        try:
            while True:
                status = await self.look(run_id)
                file = file or _opened(folder.log)
                while file is not None and (chunk := file.read(CHUNK_BYTES)):
                    yield chunk
                if file is not None and _is_rotated(file, folder.log):
                    file.close()
                    file = None
                    continue
                if status is None or not status.is_running:
                    return
                await anyio.sleep(POLL_SECONDS)
        finally:
            if file is not None:
                file.close()

    async def stop(self, run_id: str) -> None:
        program = read_program(self._of(run_id))
        if program is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            program.signal(number)
            if await _until(lambda: not program.is_running, STOP_SECONDS):
                return
        raise WorkFailed(Code.REMOVE_FAILED, f"Process {program.pid} of the job does not end, even when killed.")

    async def collect(self, run_id: str, path: str, *, bytes_max: int) -> bytes:
        work = (self._of(run_id).path / "work").resolve()
        file = (work / path).resolve()
        if not file.is_relative_to(work) or not file.is_file():
            raise WorkFailed(Code.INTERNAL, f"{path} was not kept: there is no such file in the job's folder.")
        try:
            with file.open("rb") as opened:
                content = opened.read(bytes_max + 1)
        except OSError as error:
            raise WorkFailed(Code.INTERNAL, f"{path} was not kept: {error.strerror}.") from error
        if len(content) > bytes_max:
            raise WorkFailed(Code.INTERNAL, f"{path} was not kept: it is larger than the limit.")
        return content

    async def remove(self, run_id: str) -> None:
        self._of(run_id).remove()

    async def runs(self) -> Sequence[str]:
        """What is not ours is left alone."""
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted(path.name for path in found if SAFE_NAME.fullmatch(path.name) and path.is_dir())

    def _of(self, run_id: str) -> ProcessFolder:
        if not SAFE_NAME.fullmatch(run_id):
            raise WorkFailed(Code.CREATE_FAILED, f"{run_id!r} cannot be the name of a folder on a node.")
        return ProcessFolder(self._folder / run_id)


def _opened(path: Path) -> IO[bytes] | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _is_rotated(file: IO[bytes], path: Path) -> bool:
    try:
        return os.fstat(file.fileno()).st_ino != path.stat().st_ino
    except FileNotFoundError:
        return False


def _changed_at(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


async def _until(true: Callable[[], bool], seconds: float) -> bool:
    """Polls: there is no notification about a process that is not our child."""
    deadline = anyio.current_time() + seconds
    while not (answer := true()) and anyio.current_time() < deadline:  # noqa: ASYNC110 - see above
        await anyio.sleep(POLL_SECONDS)
    return answer
