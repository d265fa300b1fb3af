"""Peers of a tunnel that ask for more than they take."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

from homeport.adapters.local_access import LocalKeys
from homeport.adapters.tunnel.connection import MuxConnection
from homeport.adapters.tunnel.entry import TunnelEntry, TunnelReception, tunnel_path
from homeport.core.model.access import NewAudit
from homeport.core.tunnel.frames import CREDIT, FrameKind, encode_frame
from homeport.core.tunnel.mux import STREAMS_MAX
from homeport.errors import StorageFull
from homeport.ports import IncomingStream

pytestmark = pytest.mark.anyio

SENT_MAX = 64 * 1024 * 1024


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[MuxConnection, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        made = MuxConnection(peer="the peer", is_opener=False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: made, ours)
        yield made, theirs
        await made.aclose("the test is over")


async def send(theirs: socket.socket, made: MuxConnection, content: bytes) -> int:
    """Until the connection breaks; returns how much was sent."""
    loop, sent = asyncio.get_running_loop(), 0
    with anyio.fail_after(60):
        while sent < SENT_MAX and not made._over.is_set():
            try:
                await loop.sock_sendall(theirs, content)
            except OSError:
                break
            sent += len(content)
    return sent


async def test_a_peer_that_pings_and_never_reads_is_disconnected() -> None:
    async with connected() as (made, theirs):
        sent = await send(theirs, made, encode_frame(FrameKind.PING) * 10_000)
        assert sent < SENT_MAX, "what waits for it would fill the memory"
        assert "does not read" in await made.closed()


async def test_a_peer_that_opens_and_resets_streams_by_the_thousand_is_disconnected() -> None:
    answered = 0

    async def answer(stream: IncomingStream) -> None:
        nonlocal answered
        answered += 1
        await anyio.sleep_forever()

    async with connected() as (made, theirs), anyio.create_task_group() as tasks:
        tasks.start_soon(made.serve, answer)
        header = CREDIT.pack(1024) + b'{"kind":"exec"}'
        frames = [
            encode_frame(FrameKind.OPEN, number, header) + encode_frame(FrameKind.RESET, number, b"")
            for number in range(1, 4 * STREAMS_MAX)
        ]
        await asyncio.get_running_loop().sock_sendall(theirs, b"".join(frames))
        with anyio.fail_after(10):
            assert "faster than they end" in await made.closed()
        assert answered <= 2 * STREAMS_MAX
        tasks.cancel_scope.cancel()


async def test_a_refusal_that_cannot_be_recorded_is_a_refusal_all_the_same() -> None:
    """A stranger who asks for a tunnel while the disk is full must not end the site."""

    async def record(entry: NewAudit) -> None:
        raise StorageFull("The disk is full.")

    ours, theirs = socket.socketpair()
    made: list[TunnelEntry] = []
    with theirs:
        theirs.setblocking(False)
        entry = TunnelEntry(
            cast("TunnelReception", None),  # nothing gets that far
            "192.0.2.1",
            verify=None,
            local=LocalKeys.new(),
            on_refused=record,
            on_made=made.append,
        )
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: entry, ours)
        request = f"GET {tunnel_path('n1')} HTTP/1.1\r\nhost: x\r\nupgrade: homeport-tunnel\r\n\r\n"
        await loop.sock_sendall(theirs, request.encode())
        with anyio.fail_after(10):
            await entry.serve()
            answer = await loop.sock_recv(theirs, 4096)
        assert answer.startswith(b"HTTP/1.1 403 ")
