"""Runs another program to its end: with a deadline, a bounded memory of its output, and no orphan left behind.

The program gets a session of its own, so that cancelling ends everything it started as well.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL

import anyio
import anyio.abc

OUTPUT_MAX = 256 * 1024
"""How much of each stream is kept; the end of it, for that is where the error stands."""
GRACE_SECONDS = 2.0
DRAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Finished:
    exit_code: int
    output: str
    errors: str


async def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds: float,
    folder: Path | None = None,
    output_max: int = OUTPUT_MAX,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Raises OSError when the program cannot be started and TimeoutError when it did not end in time.

    Of what it prints on either stream the last `output_max` bytes are kept.
    """
    process = await anyio.open_process(
        list(command),
        stdin=DEVNULL,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
        pass_fds=pass_fds,
    )
    output, errors = bytearray(), bytearray()
    try:
        with anyio.fail_after(seconds):
            async with anyio.create_task_group() as readers:
                readers.start_soon(_collect, process.stdout, output, output_max)
                readers.start_soon(_collect, process.stderr, errors, OUTPUT_MAX)
                await process.wait()
                # A daemon it started may hold the pipes open for ever; what was written by now is read by then.
                readers.cancel_scope.deadline = anyio.current_time() + DRAIN_SECONDS
    finally:
        await _end(process)
    assert process.returncode is not None
    return Finished(process.returncode, output.decode(errors="replace"), errors.decode(errors="replace"))


async def _collect(stream: anyio.abc.ByteReceiveStream | None, into: bytearray, length_max: int) -> None:
    assert stream is not None
    async for chunk in stream:
        into += chunk
        del into[:-length_max]


async def _end(process: anyio.abc.Process) -> None:
    """Leaves nothing running and no pipe open. Shielded, for it matters most when we are being cancelled."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            signal_group(process.pid, signal.SIGTERM)
            with anyio.move_on_after(GRACE_SECONDS):
                await process.wait()
        if process.returncode is None:
            signal_group(process.pid, signal.SIGKILL)
            with anyio.move_on_after(GRACE_SECONDS):
                await process.wait()
        await process.aclose()


def signal_group(pid: int, number: signal.Signals) -> None:
    """Not through the process object: that one would also wait for the child, and asyncio would miss its end."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
