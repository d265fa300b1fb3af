"""This terminal as that of a command elsewhere: input, output, size, Ctrl-C, exit code."""

import asyncio
import json
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio

from homeport.cli.api.client import Client
from homeport.cli.api.socket import open_socket
from homeport.core.tunnel.exec_messages import Channel, MessageReader, encode_message
from homeport.errors import HomeportError, PeerUnavailable
from homeport.ports import TunnelStream
from homeport.tunnel.relaying import first_error

READ_BYTES: Final = 32 * 1024


async def run_remotely(
    client: Client,
    path: str,
    query: Mapping[str, Any],
    command: Sequence[str],
    *,
    has_input: bool,
    has_terminal: bool,
) -> int:
    """The exit code of the command. Ctrl-C ends it, or reaches it where it has a terminal."""
    header = {
        "kind": "exec",
        "command": list(command),
        "input": has_input,
        "terminal": _size() if has_terminal else None,
    }
    async with open_socket(client, path, **query) as connection, connection.open(header) as stream:
        with _raw_terminal(is_wanted=has_terminal and has_input):
            try:
                return await _converse(stream, has_input=has_input, has_terminal=has_terminal)
            except BaseExceptionGroup as group:
                raise first_error(group) from group


async def _converse(stream: TunnelStream, *, has_input: bool, has_terminal: bool) -> int:
    loop = asyncio.get_running_loop()
    async with anyio.create_task_group() as tasks:
        if has_terminal:

            async def resize() -> None:
                await stream.write(encode_message(Channel.RESIZE, json.dumps(_size()).encode()))

            loop.add_signal_handler(signal.SIGWINCH, lambda: tasks.start_soon(resize))
        if has_input:
            # A thread of its own: a terminal, a pipe and a file are read alike, and its end waits for no input.
            threading.Thread(target=_feed, args=(stream, loop), daemon=True).start()
        try:
            code = await _show(stream)
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            tasks.cancel_scope.cancel()
    return code


async def _show(stream: TunnelStream) -> int:
    reader = MessageReader()
    while data := await stream.read():
        for message in reader.feed(data):
            match message.channel:
                case Channel.OUTPUT:
                    _write(1, message.content)
                case Channel.ERRORS:
                    _write(2, message.content)
                case Channel.EXIT:
                    await stream.end()
                    return int(json.loads(message.content).get("code", 0))
                case _:
                    pass
    raise PeerUnavailable("The command ended without an exit code.", hint="See whether its container still runs.")


def _feed(stream: TunnelStream, loop: asyncio.AbstractEventLoop) -> None:
    """Waits while the command does not read."""
    try:
        while True:
            data = os.read(0, READ_BYTES)
            message = encode_message(Channel.INPUT, data)
            asyncio.run_coroutine_threadsafe(_coroutine(stream, message), loop).result()
            if not data:
                return
    except (HomeportError, RuntimeError, OSError, asyncio.CancelledError):
        return  # The session is over, and says why itself.


async def _coroutine(stream: TunnelStream, message: bytes) -> None:
    await stream.write(message)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _size() -> dict[str, int]:
    found = shutil.get_terminal_size()
    return {"columns": found.columns, "rows": found.lines}


@contextmanager
def _raw_terminal(*, is_wanted: bool) -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too."""
    if not is_wanted:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
