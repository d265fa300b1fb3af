"""A program that was started before it is known what it has to do, so that its slow imports are done by then.

It is started with `--wait`, reads its arguments, environment and folder as JSON from standard input, and goes on as
if it had been started with them. One that is not called ends by itself, with the exit code `NOT_CALLED`; a caller at
that very moment starts it again (ADR 0106).
"""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

WAIT: Final = "--wait"
NOT_CALLED: Final = 75
FRESH_SECONDS: Final = 10.0
"""How long a program is used after its start: half of what it waits itself."""


class Prestarted:
    """A few programs that wait. For one event loop."""

    def __init__(self, program: Sequence[str], environment: Mapping[str, str]) -> None:
        self._program = list(program)
        self._environment = environment
        self._waiting: list[tuple[anyio.abc.Process, float]] = []

    async def warm(self, count: int) -> None:
        """Starts as many as are missing. Whether they work is seen when they are called."""
        fresh = [each for each in self._waiting if _is_fresh(*each)]
        stale = [process for process, since in self._waiting if not _is_fresh(process, since)]
        self._waiting = fresh
        for process in stale:
            await _end(process)
        for _ in range(count - len(fresh)):
            try:
                process = await anyio.open_process(
                    [*self._program, WAIT],
                    stdin=subprocess.PIPE,
                    env=dict(self._environment),
                    start_new_session=True,
                )
            except OSError:
                return
            self._waiting.append((process, time.monotonic()))

    async def call(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None
    ) -> anyio.abc.Process | None:
        """A program that waited, on its way with these arguments. None where none waits, or for another program."""
        if list(command[: len(self._program)]) != self._program:
            return None
        while self._waiting:
            process, since = self._waiting.pop(0)
            assert process.stdin is not None
            try:
                if _is_fresh(process, since):
                    await process.stdin.send(order(command[len(self._program) :], environment, folder))
                    await process.stdin.aclose()
                    return process
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass
            except BaseException:
                await _end(process)
                raise
            await _end(process)
        return None

    async def close(self) -> None:
        waiting, self._waiting = self._waiting, []
        for process, _ in waiting:
            await _end(process)


def _is_fresh(process: anyio.abc.Process, since: float) -> bool:
    return process.returncode is None and time.monotonic() - since < FRESH_SECONDS


def order(arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None) -> bytes:
    where = str(Path.cwd() if folder is None else folder)
    return json.dumps({"arguments": list(arguments), "environment": dict(environment), "folder": where}).encode()


async def _end(process: anyio.abc.Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
        await process.wait()
        await process.aclose()
