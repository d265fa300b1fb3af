"""A command in a container through the engine's API, on a connection that the engine hands over (hijacking).

Without a terminal the engine sends standard output and standard error in frames; with one there is a single stream.
The API cannot end a command, so one that is left behind is ended by its process id, where that is certain to be it.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio

from homeport.adapters.network.http_client import Address, TcpAddress, UnixAddress
from homeport.adapters.runtime.docker_api.client import API, EngineApi, EngineRefusal
from homeport.adapters.runtime.failures import program_missing
from homeport.core.tunnel.exec_messages import MESSAGE_BYTES_MAX, Channel
from homeport.core.tunnel.targets import ExecTarget, TerminalSize
from homeport.errors import EngineUnavailable, NotFound, PermanentError, Refused
from homeport.log import get_log

log = get_log("homeport.runtime")

START_SECONDS_MAX: Final = 15.0
ENDED_SECONDS_MAX: Final = 5.0
"""How long the engine may take to know the exit code after the end of the output."""
KILL_SECONDS: Final = 2.0
FRAME_HEADER: Final = 8
HEAD_BYTES_MAX: Final = 64 * 1024
ENGINE_LINES_MAX: Final = 20
NOT_STARTED: Final = frozenset({126, 127})
"""Exit codes of a command that did not begin."""


@asynccontextmanager
async def open_exec(
    api: EngineApi, reach: Callable[[], Any], container_id: str, target: ExecTarget
) -> AsyncIterator["EngineExec"]:
    body = {
        "Cmd": list(target.command),
        "AttachStdin": target.has_input,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": target.terminal is not None,
        "Env": ["TERM=xterm-256color"] if target.terminal is not None else [],
    }
    try:
        made = (await api.call("POST", f"{API}/containers/{container_id}/exec", body=json.dumps(body).encode()))["Id"]
    except EngineRefusal as refusal:
        raise _translated(refusal) from refusal
    reader, writer = await _start(await reach(), str(made), target.terminal is not None)
    session = EngineExec(api, str(made), container_id, reader, writer, is_terminal=target.terminal is not None)
    try:
        if target.terminal is not None:
            await session.resize(target.terminal)
        yield session
    finally:
        with anyio.move_on_after(KILL_SECONDS + ENDED_SECONDS_MAX, shield=True):
            if not session.has_ended:
                await session.kill()
        writer.close()
        with anyio.move_on_after(1, shield=True), suppress(OSError):
            await writer.wait_closed()


class EngineExec:
    """`ports.ExecSession`."""

    def __init__(
        self,
        api: EngineApi,
        exec_id: str,
        container_id: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_terminal: bool,
    ) -> None:
        self.has_ended = False
        self._api = api
        self._exec_id = exec_id
        self._container_id = container_id
        self._reader = reader
        self._writer = writer
        self._is_terminal = is_terminal
        self._left = 0
        """Bytes of the current frame that were not read yet."""
        self._channel = Channel.OUTPUT
        self._is_begun = False
        self._line_end = "\r\n" if is_terminal else "\n"

    async def read(self) -> tuple[Channel, bytes] | None:
        """The output as it comes; where the program is not there, one sentence instead of the engine's lines."""
        if self._is_begun:
            return await self._read()
        self._is_begun = True
        first = await self._read()
        sentence = None if first is None else program_missing(first[1].decode(errors="replace"))
        if first is None or sentence is None:
            return first
        said = [first]
        while len(said) < ENGINE_LINES_MAX and (more := await self._read()) is not None:
            said.append(more)
        if not self.has_ended or await self.exit_code() not in NOT_STARTED:
            return first[0], b"".join(content for _, content in said)
        return first[0], f"{sentence}{self._line_end}".encode()

    async def _read(self) -> tuple[Channel, bytes] | None:
        try:
            if not self._is_terminal and not self._left and not await self._next_frame():
                self.has_ended = True
                return None
            size = min(self._left, MESSAGE_BYTES_MAX) if self._left else MESSAGE_BYTES_MAX
            data = await self._reader.read(size)
        except (OSError, asyncio.IncompleteReadError):
            self.has_ended = True
            return None
        if not data:
            self.has_ended = True
            return None
        self._left -= 0 if self._is_terminal else len(data)
        return self._channel, data

    async def write(self, data: bytes) -> None:
        with suppress(OSError):  # It does not read any more; how it ends is read from its output.
            self._writer.write(data)
            await self._writer.drain()

    async def end_input(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    async def resize(self, size: TerminalSize) -> None:
        if not self._is_terminal:
            return
        query = {"h": str(size.rows), "w": str(size.columns)}
        with suppress(EngineRefusal):  # It has ended meanwhile.
            await self._api.call("POST", f"{API}/exec/{self._exec_id}/resize", query=query)

    async def exit_code(self) -> int:
        with anyio.move_on_after(ENDED_SECONDS_MAX):
            while True:
                state = await self._inspect()
                if not state.get("Running"):
                    return int(state.get("ExitCode") or 0)
                await anyio.sleep(0.05)
        return 0

    async def kill(self) -> None:
        """SIGHUP as when a terminal is closed, then SIGKILL."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            state = await self._inspect()
            pid = int(state.get("Pid") or 0)
            if not state.get("Running") or not await self._is_ours(pid):
                return
            with suppress(OSError):
                os.kill(pid, number)
            with anyio.move_on_after(KILL_SECONDS):
                while (await self._inspect()).get("Running"):  # noqa: ASYNC110 - the engine has no event for it
                    await anyio.sleep(0.05)

    async def _is_ours(self, pid: int) -> bool:
        """Whether the process is in the container, as this machine sees it. An engine in a virtual machine has
        process ids of its own."""
        try:
            inspected = await self._api.inspect(self._container_id)
            main = int(inspected["State"].get("Pid") or 0)
            spaces = [_pid_namespace(each) for each in (pid, main, os.getpid())]
        except (EngineRefusal, OSError, KeyError, ValueError):
            return False
        return pid > 1 and spaces[0] == spaces[1] != spaces[2]

    async def _inspect(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = await self._api.call("GET", f"{API}/exec/{self._exec_id}/json")
        except (EngineRefusal, EngineUnavailable):
            return {}
        return found

    async def _next_frame(self) -> bool:
        while not self._left:
            header = await self._reader.readexactly(FRAME_HEADER)
            self._channel = Channel.ERRORS if header[0] == 2 else Channel.OUTPUT
            self._left = int.from_bytes(header[4:], "big")
        return True


def _pid_namespace(pid: int) -> Path:
    return Path("/proc", str(pid), "ns", "pid").readlink()


async def _start(
    address: Address, exec_id: str, is_terminal: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    body = json.dumps({"Detach": False, "Tty": is_terminal}).encode()
    request = (
        f"POST {API}/exec/{exec_id}/start HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    ).encode()
    try:
        with anyio.fail_after(START_SECONDS_MAX):
            reader, writer = await _connect(address)
            writer.write(request + body)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status in {101, 200}:
                return reader, writer
            refused = await reader.read(HEAD_BYTES_MAX)
            writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise EngineUnavailable(f"The container engine at {address} did not start the command.") from error
    raise _translated(EngineRefusal(status, _message(refused)))


async def _connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    match address:
        case UnixAddress():
            return await asyncio.open_unix_connection(str(address.path), limit=HEAD_BYTES_MAX)
        case TcpAddress():
            return await asyncio.open_connection(address.host, address.port, limit=HEAD_BYTES_MAX)
    raise Refused("Commands need the engine's own socket.", hint="Give the node its path with --engine-socket.")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (RecursionError, ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:500]


def _translated(refusal: EngineRefusal) -> PermanentError:
    said = refusal.message.rstrip(". ")
    if refusal.status == 404:
        return NotFound(f"The container is gone: {said}.", hint="Try again: it may have been replaced.")
    return Refused(f"The container engine refused it: {said}.")
