"""The compose tool's parser, started before anything else of the command is imported.

It takes as long to start as the rest of the command, so both start side by side (ADR 0106, 0160). Imports little:
everything else waits for it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

AskTool = Callable[[Sequence[str], Mapping[str, str], Path], Mapping[str, Any]]

_started: "list[subprocess.Popen[bytes]]" = []


def start() -> None:
    """It waits for what to do, and ends by itself when this process ends without a word to it."""
    program = Path(__file__).parents[2] / "adapters/runtime/podman/run_compose.py"
    with suppress(OSError):
        _started.append(
            subprocess.Popen(
                [sys.executable, "-I", str(program), "--wait"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        )


@contextmanager
def tool_ahead() -> Iterator[AskTool]:
    """Asks the one that was started, or else a new one. Nothing of it is left afterwards."""
    if not _started:
        start()
    waiting = list(_started)
    _started.clear()

    def ask(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Mapping[str, Any]:
        import anyio  # noqa: PLC0415 - see above

        from homeport.adapters.runtime.compose.tool import ask_tool, resolved_project  # noqa: PLC0415

        done = _call(waiting.pop(), command, environment, folder) if waiting else None
        return anyio.run(ask_tool, command, environment, folder) if done is None else resolved_project(done)

    try:
        yield ask
    finally:
        for process in waiting:
            _end(process)


def _call(
    process: "subprocess.Popen[bytes]", command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Any:
    """How it ended; None where it has waited in vain, or could not be asked."""
    from homeport.adapters.runtime.compose.tool import LIMITS, SECONDS_MAX, too_slow  # noqa: PLC0415 - see above
    from homeport.adapters.runtime.podman.tool import PROGRAM  # noqa: PLC0415
    from homeport.adapters.runtime.programs.child_process import FinishedProgram, limit  # noqa: PLC0415
    from homeport.adapters.runtime.programs.prestarted import NOT_CALLED, order  # noqa: PLC0415

    try:
        limit(process.pid, LIMITS)
        output, errors = process.communicate(order(command[len(PROGRAM) :], environment, folder), SECONDS_MAX)
    except subprocess.TimeoutExpired as error:
        raise too_slow() from error
    finally:
        _end(process)
    done = FinishedProgram(process.returncode, output.decode(errors="replace"), errors.decode(errors="replace"))
    return None if done.exit_code == NOT_CALLED or done.died_in_silence else done


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with process:
        process.wait()
