"""Files on their way to their readers: whole, one after the other and many at once."""

import hashlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from starlette.types import Receive, Scope, Send

from homeport.serving.server.connections import SEND_FILE
from homeport.serving.server.limits import Limits
from homeport.serving.server.run import Stopping, bind, http_server

pytestmark = pytest.mark.anyio

SIZE = 24 * 2**20
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


CONTENT = os.urandom(2**20) * (SIZE // 2**20)
WANTED = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "blob"
    path.write_bytes(CONTENT)
    return path


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[int]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % SIZE)]}
        await send(head)
        with path.open("rb") as opened:
            await scope["extensions"][SEND_FILE](opened, 0, SIZE)
        await send({"type": "http.response.body", "body": b""})

    listener = bind("127.0.0.1", 0)
    async with http_server(app, [listener], Stopping(), limits=Limits()):
        yield listener.getsockname()[1]


def body_of(line: socket.socket) -> str:
    """The digest of the next response's body."""
    content = b""
    while b"\r\n\r\n" not in content:
        content += line.recv(4096)
    content = content.partition(b"\r\n\r\n")[2]
    found, received = hashlib.sha256(content), len(content)
    while received < SIZE:
        content = line.recv(min(2**20, SIZE - received))
        assert content, "it ended early"
        found.update(content)
        received += len(content)
    return found.hexdigest()


async def test_a_connection_gets_one_file_after_the_other(file: Path) -> None:
    def talk(port: int) -> set[str]:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            found = set()
            for _ in range(3):
                line.sendall(REQUEST)
                found.add(body_of(line))
            line.sendall(REQUEST + REQUEST)  # the second is read when the first is answered
            return found | {body_of(line), body_of(line)}

    async with serving(file) as port:
        assert await anyio.to_thread.run_sync(talk, port) == {WANTED}


async def test_many_readers_are_served_at_once(file: Path) -> None:
    """All have begun before the first reads on."""
    async with serving(file) as port:
        lines = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(12)]
        try:
            for line in lines:
                line.sendall(REQUEST)
            for line in reversed(lines):
                assert await anyio.to_thread.run_sync(body_of, line) == WANTED
        finally:
            for line in lines:
                line.close()


async def test_a_server_that_stops_waits_for_no_reader(file: Path) -> None:
    line = None
    try:
        with anyio.fail_after(30):
            async with serving(file) as port:
                line = socket.create_connection(("127.0.0.1", port), timeout=60)
                line.sendall(REQUEST)
                await anyio.to_thread.run_sync(line.recv, 1000)
    finally:
        if line is not None:
            line.close()
