"""Runs another program to its end: with a timeout, bounded output, and no orphan processes left behind.

The program gets its own session, so that cancelling ends everything it started as well.
"""

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL

import anyio
import anyio.abc

from homeport.adapters.runtime.programs.prestarted import NOT_CALLED, Prestarted
from homeport.lazy_dataclass import dataclass

OUTPUT_MAX = 256 * 1024
"""How much of the end of each stream is kept, because errors are at the end."""
GRACE_SECONDS = 2.0
DRAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class FinishedProgram:
    exit_code: int
    output: str
    errors: str

    @property
    def died_in_silence(self) -> bool:
        """By a signal, before it wrote anything."""
        return self.exit_code < 0 and not self.output and not self.errors


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Limits for a program that reads untrusted input."""

    cpu_seconds: int
    data_bytes: int
    """Of writable memory; not of address space, of which Go programs reserve plenty."""


async def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds: float,
    folder: Path | None = None,
    output_max: int = OUTPUT_MAX,
    pass_fds: Sequence[int] = (),
    limits: ProgramLimits | None = None,
    prestarted: Prestarted | None = None,
) -> FinishedProgram:
    """Raises OSError when the program cannot be started and TimeoutError when it did not end in time.

    Of its output on either stream the last `output_max` bytes are kept. `prestarted` may hold the program already.
    """
    process = None if prestarted is None else await prestarted.call(command, environment, folder)
    if process is not None:
        done = await _to_its_end(process, seconds=seconds, output_max=output_max, limits=limits)
        if done.exit_code != NOT_CALLED and not done.died_in_silence:
            return done
    process = await anyio.open_process(
        list(command),
        stdin=DEVNULL,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
        pass_fds=pass_fds,
    )
    return await _to_its_end(process, seconds=seconds, output_max=output_max, limits=limits)


async def _to_its_end(
    process: anyio.abc.Process, *, seconds: float, output_max: int, limits: ProgramLimits | None
) -> FinishedProgram:
    if limits is not None:
        limit(process.pid, limits)
    output, errors = bytearray(), bytearray()
    try:
        with anyio.fail_after(seconds):
            async with anyio.create_task_group() as readers:
                readers.start_soon(_collect, process.stdout, output, output_max)
                readers.start_soon(_collect, process.stderr, errors, OUTPUT_MAX)
                await process.wait()
                # A daemon it started may hold the pipes open forever; what was written so far has been read by then.
                readers.cancel_scope.deadline = anyio.current_time() + DRAIN_SECONDS
    finally:
        await _end(process)
    assert process.returncode is not None
    return FinishedProgram(process.returncode, output.decode(errors="replace"), errors.decode(errors="replace"))


def limit(pid: int, limits: ProgramLimits) -> None:
    """From outside, because nothing may run between fork and exec in a process with threads; a program takes longer
    to start than this."""
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds))
        resource.prlimit(pid, resource.RLIMIT_DATA, (limits.data_bytes, limits.data_bytes))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except ProcessLookupError:
        return


async def _collect(stream: anyio.abc.ByteReceiveStream | None, into: bytearray, length_max: int) -> None:
    assert stream is not None
    async for chunk in stream:
        into += chunk
        del into[:-length_max]


async def _end(process: anyio.abc.Process) -> None:
    """Leaves nothing running and no pipe open. Shielded, because it matters most during cancellation."""
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
    """Not through the process object: that would also reap the child, and asyncio would miss its exit."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
