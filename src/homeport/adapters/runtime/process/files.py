"""The state of one native program, in files: the process runtime must find the program again after a restart.

A program is identified by pid, start time and boot id, so that a recycled pid is never mistaken for it.
"""

import json
import os
import shutil
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

from homeport.adapters.runtime.process.program_keeper import start_time
from homeport.lazy_dataclass import dataclass

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class ProcessFolder:
    """`<data>/process/<deployment>/<component>/`"""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def exit(self) -> Path:
        return self.path / "exit.json"

    @property
    def log(self) -> Path:
        return self.path / "output.log"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was started, whether it still runs or not."""

    pid: int
    start_time: int
    digest: str
    started_at: str
    boot_id: str
    exit_code: int | None

    @property
    def id(self) -> str:
        return f"{self.pid}-{self.start_time}"

    @property
    def is_running(self) -> bool:
        return self.boot_id == boot_id() and _lives(self.pid, self.start_time)

    def signal(self, number: signal.Signals) -> None:
        """To the program's process group."""
        if self.is_running:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return


def read_program(folder: ProcessFolder) -> Program | None:
    """None where none was started, or the file that says so is damaged."""
    state, ended = _json(folder.state), _json(folder.exit)
    if state is None:
        return None
    try:
        return Program(
            pid=int(state["pid"]),
            start_time=int(state["start_time"]),
            digest=str(state["digest"]),
            started_at=datetime.fromisoformat(state["started_at"]).isoformat(),
            boot_id=str(state["boot_id"]),
            exit_code=_exit_code(ended["exit_code"]) if ended and ended.get("pid") == state["pid"] else None,
        )
    except (KeyError, TypeError, ValueError):
        return None


def _exit_code(written: Any) -> int:
    """The keeper writes the negative number of the signal that ended the program; shells and container engines add it
    to 128."""
    found = int(written)
    return SIGNALLED - found if found < 0 else found


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _lives(pid: int, started: int) -> bool:
    """A zombie has ended; only its parent has not reaped it yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] not in ("Z", "X") and start_time(pid) == started
    except OSError:
        return False
