"""Runs the compose tool's parser on a file, in a process with bounded time, memory and output (ADR 0028).

Imports little: the command line uses it too, while a user waits.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from anyio.to_thread import run_sync

from homeport.adapters.files.bounded_yaml import load_documents
from homeport.adapters.runtime.failures import meaningful_line
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.prestarted import Prestarted
from homeport.core.archive import COMPOSE_FILE
from homeport.errors import EngineUnavailable, InvalidInput

SECONDS_MAX: Final = 30.0
LIMITS: Final = child_process.ProgramLimits(cpu_seconds=20, data_bytes=512 * 1024 * 1024)
OUTPUT_MAX: Final = 1024 * 1024


async def ask_tool(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, prestarted: Prestarted | None = None
) -> Mapping[str, Any]:
    """A project as the compose tool resolves it. Raises InvalidInput with the tool's error, and EngineUnavailable
    where there is no tool."""
    try:
        done = await child_process.run(
            command,
            environment=environment,
            seconds=SECONDS_MAX,
            folder=folder,
            output_max=OUTPUT_MAX,
            limits=LIMITS,
            prestarted=prestarted,
        )
    except TimeoutError as error:
        raise too_slow() from error
    except OSError as error:
        raise EngineUnavailable(f"The compose tool cannot be run: {error.strerror}: {command[0]}.") from error
    return await run_sync(resolved_project, done)


def resolved_project(done: child_process.FinishedProgram) -> Mapping[str, Any]:
    """What the tool has printed. Raises InvalidInput with its error."""
    if done.exit_code != 0:
        raise InvalidInput(f"the compose tool refuses it: {meaningful_line(done.errors + done.output)}")
    if len(done.output) >= OUTPUT_MAX:
        raise InvalidInput(f"{COMPOSE_FILE} describes more than {OUTPUT_MAX // 1024} KiB.")
    resolved = (load_documents(done.output, COMPOSE_FILE, size_max=OUTPUT_MAX) or [None])[0]
    return resolved if isinstance(resolved, Mapping) else {}


def too_slow() -> InvalidInput:
    return InvalidInput(f"the compose tool did not read {COMPOSE_FILE} in time")
