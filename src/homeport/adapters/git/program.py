"""Runs the `git` program: for fetch, push and housekeeping, never for reading.

It supports proxies, credential helpers and ssh, and it can be stopped: every run has a deadline, and a cancelled
caller leaves no process behind. It never prompts, because there is no terminal.
"""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from homeport.errors import GitUnavailable
from homeport.lazy_dataclass import dataclass

OUTPUT_BYTES_MAX = 64 * 1024
"""How much of the end of a run's output is kept; error messages are shorter."""

PATIENCE = 20
"""The maximum run time of a git that keeps showing progress, in multiples of its timeout."""

MEMORY_KEPT_BYTES = 4 * 2**20
"""What git's allocator may keep at its end. It compresses each object in memory of its own, which the allocator would
give back to the system and ask for again: two thirds of the CPU time of a commit of ten thousand files."""

ENDING_SECONDS = 2.0
"""How long a terminated git may take to remove its lock files before it is killed."""


@dataclass(frozen=True, slots=True)
class GitResult:
    exit_code: int
    stdout: str
    stderr: str


async def run_git(
    clone: Path, *arguments: str, timeout_seconds: float, stdin: bytes = b"", ssh_options: str = ""
) -> GitResult:
    """Runs git on the bare repository `clone`.

    Raises TimeoutError after `timeout_seconds` without output, or `PATIENCE` times that in total: a large first fetch
    over a slow link shows progress and may take long, a stalled one does not.
    """
    try:
        process = await anyio.open_process(
            ["git", f"--git-dir={clone}", *arguments],
            stdin=PIPE if stdin else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd="/",  # the clone may have vanished; then git reports that
            env=environment(os.environ, ssh_options),
            start_new_session=True,  # detached from the terminal: no prompt, and Ctrl-C reaches only us
        )
    except FileNotFoundError as error:
        raise GitUnavailable("The program git is not installed.", hint="Install it, e.g. apt install git.") from error
    async with process:
        try:
            return await _communicate(process, stdin, timeout_seconds)
        finally:
            if process.returncode is None:
                await _end(process)


def environment(inherited: Mapping[str, str], ssh_options: str = "") -> dict[str, str]:
    """The user's git settings and credentials apply; anything that would prompt, translate or redirect does not."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "SSH_ASKPASS"}
    }
    kept["GIT_SSH_COMMAND"] = f"{kept.get('GIT_SSH_COMMAND', 'ssh -o BatchMode=yes')} {ssh_options}".rstrip()
    kept.setdefault("MALLOC_TOP_PAD_", str(MEMORY_KEPT_BYTES))
    return kept | {
        "GIT_TERMINAL_PROMPT": "0",
        "GCM_INTERACTIVE": "never",
        "GIT_ALLOW_PROTOCOL": "file:http:https:ssh:git",
        "LC_ALL": "C",  # messages are matched by their text
    }


async def _communicate(process: Process, stdin: bytes, timeout_seconds: float) -> GitResult:
    assert process.stdout is not None and process.stderr is not None
    stdout, stderr = bytearray(), bytearray()
    last_moment = anyio.current_time() + PATIENCE * timeout_seconds

    def is_alive() -> None:
        silence.deadline = min(anyio.current_time() + timeout_seconds, last_moment)

    with anyio.CancelScope() as silence:
        is_alive()
        async with anyio.create_task_group() as group:
            group.start_soon(_collect, process.stdout, stdout, is_alive)
            group.start_soon(_collect, process.stderr, stderr, is_alive)
            if process.stdin is not None:
                group.start_soon(_feed, process.stdin, stdin)
        exit_code = await process.wait()
        return GitResult(exit_code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    raise TimeoutError


async def _feed(stream: ByteSendStream, content: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # it ended early; its output says why
        await stream.send(content)
    await stream.aclose()


async def _collect(stream: ByteReceiveStream, into: bytearray, is_alive: Callable[[], None]) -> None:
    async for chunk in stream:
        is_alive()
        into += chunk
        del into[:-OUTPUT_BYTES_MAX]


async def _end(process: Process) -> None:
    """Terminates git and its children (ssh, the http helper), with time to remove its lock files."""
    with anyio.CancelScope(shield=True):
        _signal_group(process, signal.SIGTERM)
        with anyio.move_on_after(ENDING_SECONDS):
            await process.wait()
        _signal_group(process, signal.SIGKILL)  # also children that git did not wait for
        await process.wait()


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
