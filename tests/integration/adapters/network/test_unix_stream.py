"""A connection to a Unix socket: what is sent arrives, and a reader that is cancelled leaves no error behind."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.network.unix_stream import UnixStream

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[UnixStream, socket.socket]]:
    path = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        stream = UnixStream(await anyio.connect_unix(path))
        peer, _ = listening.accept()
        with peer:
            async with stream:
                yield stream, peer


async def test_a_reader_that_is_cancelled_as_something_arrives_is_no_error(tmp_path: Path) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with connected(tmp_path) as (stream, peer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.receive)
            await anyio.sleep(0.01)
            peer.send(b"x")
            # Runs in the turn of the event loop in which it sees that the socket is readable.
            asyncio.get_running_loop().call_soon(tasks.cancel_scope.cancel)
        await anyio.sleep(0.01)
        assert failures == []
        assert await stream.receive() == b"x", "nothing is lost"


async def test_more_than_the_socket_holds_arrives_whole_and_then_the_end(tmp_path: Path) -> None:
    content, found = bytes(range(256)) * 8_000, bytearray()
    async with connected(tmp_path) as (stream, peer), anyio.create_task_group() as tasks:

        async def send() -> None:
            await stream.send(content)
            await stream.send_eof()

        tasks.start_soon(send)
        while part := await anyio.to_thread.run_sync(peer.recv, 65536):
            found += part
        assert found == content
        peer.close()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_closing_ends_a_reader(tmp_path: Path) -> None:
    async with connected(tmp_path) as (stream, _), anyio.create_task_group() as tasks:

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()

        tasks.start_soon(read)
        await anyio.sleep(0.01)
        await stream.aclose()
