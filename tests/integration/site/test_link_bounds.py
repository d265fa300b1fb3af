"""What a peer can do to a site's gRPC port that it should not, and that others do not notice."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import grpc
import grpc.aio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from h2.connection import H2Connection

from homeport.adapters.link import grpc_connection, grpc_server
from homeport.adapters.link.grpc_calls import MESSAGE_BYTES_MAX
from homeport.adapters.link.grpc_node import GrpcSiteLink, GrpcStream
from homeport.adapters.link.grpc_server import HANDSHAKES_PER_ADDRESS_MAX
from homeport.adapters.link.grpc_services import serve_services
from homeport.adapters.link.grpc_site import SERVICE, nodes_service
from homeport.errors import PeerUnavailable
from homeport.fleet.site.nodes import streams
from homeport.ports import Hello, SiteLink, Stream, Welcome
from homeport.vocabulary import NodeId
from homeport.wire.v1 import nodes_pb2 as pb
from tests.support.builders import a_node
from tests.support.identities import TestRealm, link_of
from tests.support.listening import outliving
from tests.support.receptions import FrontDesk, front_desk
from tests.support.stubs import nodes_pb2_grpc as pb_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""How every HTTP/2 connection begins: the greeting, and empty settings."""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as desk:
        yield desk


@pytest.fixture
async def port(desk: FrontDesk) -> AsyncIterator[int]:
    async with serve_services([nodes_service(desk.reception)], "127.0.0.1:0") as port:
        yield port


@asynccontextmanager
async def connected(link: SiteLink, name: str = "good") -> AsyncIterator[Stream]:
    async with link.connect() as stream:
        await stream.send(Hello(a_node(name).info, ()))
        with anyio.fail_after(60):
            assert isinstance(await anext(aiter(stream)), Welcome)
        yield stream


def still_connected(desk: FrontDesk, name: str = "good") -> bool:
    return NodeId(name) in desk.sessions.connected


def stub(channel: grpc.aio.Channel) -> Any:
    return pb_grpc.NodesStub(channel)  # type: ignore[no-untyped-call]


def open_sockets(count: int, port: int, *, source: str = "127.0.0.1") -> list[socket.socket]:
    """Connections that say nothing."""
    return [
        socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0)) for _ in range(count)
    ]


def is_closed(raw: socket.socket) -> bool:
    raw.setblocking(False)
    try:
        while raw.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize(
    "garbage",
    [
        os.urandom(4096),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        + b"\x00\x00\x04\x0a\x00\x00\x00\x00\x00abcd",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        + b"\x00\x00\x04\x77\x00\x00\x00\x00\x00abcd",
    ],
    ids=["noise", "http1", "bad-frames", "alternative-service", "unknown-frame"],
)
async def test_garbage_ends_its_own_connection_only(desk: FrontDesk, port: int, garbage: bytes) -> None:
    async with connected(GrpcSiteLink("127.0.0.1", port)):
        async with await anyio.connect_tcp("127.0.0.1", port) as raw:
            await raw.send(garbage)
            with anyio.move_on_after(0.5), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await raw.receive()
        assert still_connected(desk)


async def test_a_stream_that_never_says_hello_is_ended(
    desk: FrontDesk, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HELLO_SECONDS_MAX", 0.3)
    async with GrpcSiteLink("127.0.0.1", port).connect() as stream:
        with pytest.raises(PeerUnavailable, match="must begin with hello, and none came"), anyio.fail_after(60):
            await anext(aiter(stream))


async def test_a_message_that_is_too_large_is_refused_by_code(desk: FrontDesk, port: int) -> None:
    options = [("grpc.max_send_message_length", -1)]
    async with (
        connected(GrpcSiteLink("127.0.0.1", port)),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel,
    ):
        node = pb.Node(id="big", hostname="x" * (MESSAGE_BYTES_MAX + 1), capabilities=pb.Capabilities())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).RegisterNode(pb.RegisterNodeRequest(node=node), timeout=60)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert still_connected(desk)
        assert NodeId("big") not in desk.conductor.memory.nodes


@pytest.mark.parametrize(
    ("announced", "reason"),
    [
        (b"\x00\xff\xff\xff\xff", "a message may have"),
        (b"\x01\x00\x00\x00\x03", "compressed"),
        (b"\x00\x00\x00\x00\x03", "not a valid FromNode"),
    ],
    ids=["four gigabytes", "compressed", "not a message"],
)
async def test_a_message_that_is_none_is_refused(desk: FrontDesk, port: int, announced: bytes, reason: str) -> None:
    async with GrpcSiteLink("127.0.0.1", port).connect() as stream:
        assert isinstance(stream, GrpcStream)
        await stream._call._stream.send_data(announced + b"\xff\xff\xff")
        with pytest.raises(PeerUnavailable, match=reason), anyio.fail_after(60):
            await anext(aiter(stream))
    assert not desk.sessions.connected


async def test_silent_handshakes_of_one_address_leave_others_theirs(desk: FrontDesk, tmp_path: Path) -> None:
    site = TestRealm(tmp_path / "realm").site()
    async with serve_services(
        [nodes_service(desk.reception)], "127.0.0.1:0", tls=site.server_context(), verify=site.verify
    ) as port:
        flood = await anyio.to_thread.run_sync(lambda: open_sockets(1000, port, source="127.0.0.2"))
        try:
            await eventually(lambda: sum(is_closed(raw) for raw in flood) >= 1000 - HANDSHAKES_PER_ADDRESS_MAX)
            async with connected(link_of(site.node("good"), port)):
                assert still_connected(desk)
        finally:
            for raw in flood:
                raw.close()


async def test_idle_connections_make_room_when_there_are_too_many(
    desk: FrontDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "room_for_connections", lambda: 30)
    async with (
        serve_services([nodes_service(desk.reception)], "127.0.0.1:0") as port,
        connected(GrpcSiteLink("127.0.0.1", port)),
    ):
        flood = await anyio.to_thread.run_sync(lambda: open_sockets(200, port))
        try:
            async with connected(GrpcSiteLink("127.0.0.1", port), "late"):
                assert {NodeId("good"), NodeId("late")} == desk.sessions.connected
            await eventually(lambda: sum(not is_closed(raw) for raw in flood) <= 30)
        finally:
            for raw in flood:
                raw.close()
        assert still_connected(desk)


CONNECT = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", f"{SERVICE}/Connect"),
    (":authority", "x"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


async def test_a_peer_that_resets_call_after_call_is_cut_off(desk: FrontDesk, port: int) -> None:
    async with connected(GrpcSiteLink("127.0.0.1", port)), await anyio.connect_tcp("127.0.0.1", port) as raw:
        http2 = H2Connection()
        http2.initiate_connection()
        with anyio.fail_after(60), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            for number in range(10 * grpc_connection.BROKEN_CALLS_MAX):
                http2.send_headers(2 * number + 1, CONNECT)
                http2.reset_stream(2 * number + 1)
                await raw.send(http2.data_to_send())
            while True:
                await raw.receive()
        assert still_connected(desk)


async def test_a_peer_with_more_calls_than_it_was_told_is_cut_off(desk: FrontDesk, port: int) -> None:
    async with connected(GrpcSiteLink("127.0.0.1", port)), await anyio.connect_tcp("127.0.0.1", port) as raw:
        http2 = H2Connection()
        http2.initiate_connection()
        await raw.send(http2.data_to_send())
        while http2.remote_settings.max_concurrent_streams != grpc_connection.CALLS_MAX:
            http2.receive_data(await raw.receive())
            await raw.send(http2.data_to_send())
        http2.remote_settings.max_concurrent_streams = 1000
        http2.remote_settings.acknowledge()
        for number in range(grpc_connection.CALLS_MAX + 1):
            http2.send_headers(2 * number + 1, CONNECT)
        await raw.send(http2.data_to_send())
        with anyio.fail_after(60), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            while True:
                await raw.receive()
        assert still_connected(desk)


async def test_a_link_that_was_cut_without_a_word_is_noticed(
    desk: FrontDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(
        grpc_connection.CONFIGURATION,
        _keepalive_time=0.2,
        _keepalive_timeout=0.3,
        _http2_min_sent_ping_interval_without_data=0.1,
    )
    monkeypatch.setattr(grpc_connection, "CONFIGURATION", quick)
    async with (
        serve_services([nodes_service(desk.reception)], "127.0.0.1:0") as port,
        _relay(port) as (relay_port, cut),
        connected(GrpcSiteLink("127.0.0.1", relay_port)),
    ):
        await anyio.sleep(1)
        assert still_connected(desk), "a living link is left alone"
        cut.set()
        await eventually(lambda: not still_connected(desk))


@asynccontextmanager
async def _relay(port: int) -> AsyncIterator[tuple[int, anyio.Event]]:
    """Passes bytes on until `cut` is set; then both ends hear nothing, and nothing is closed."""
    cut = anyio.Event()

    async def copy(source: SocketStream, target: SocketStream) -> None:
        async for chunk in source:
            if cut.is_set():
                await anyio.sleep_forever()
            await target.send(chunk)

    async def serve(client: SocketStream) -> None:
        async with await anyio.connect_tcp("127.0.0.1", port) as server, anyio.create_task_group() as pipes:
            pipes.start_soon(copy, client, server)
            pipes.start_soon(copy, server, client)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, outliving(serve))
        yield listener.extra(SocketAttribute.local_port), cut
        tasks.cancel_scope.cancel()
