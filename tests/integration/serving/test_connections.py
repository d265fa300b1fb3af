"""What a stranger can do to the web server below any route: large or slow heads, many connections, many guesses."""

import asyncio
import contextlib
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from homeport.adapters.network.tls_buffers import TLS_BUFFER_BYTES
from homeport.core.model.caller import INTERNAL, Role
from homeport.errors import InvalidInput
from homeport.serving.server.connections import ABORT, UPGRADE, HttpConnection
from homeport.serving.server.limits import Limits
from homeport.serving.server.listening import Listener
from homeport.serving.server.run import ACCEPTED_AT_ONCE, Stopping, bind, http_server
from tests.support.certificates import Household
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

GUESSES = 10_000
PIECE = bytes(65_536)


async def _hello(request: Request) -> Response:
    return PlainTextResponse(f"hello, {len(await request.body())}")


@asynccontextmanager
async def serving(limits: Limits) -> AsyncIterator[int]:
    app = Starlette(routes=[Route("/", _hello, methods=["GET", "POST"])])
    listener = bind("127.0.0.1", 0)
    async with http_server(app, [listener], Stopping(), limits=limits):
        yield listener.getsockname()[1]


async def send(port: int, *pieces: bytes, pause_seconds: float = 0.0) -> bytes:
    """Everything that comes back until the other side closes."""

    def talk() -> bytes:
        answer = b""
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause_seconds)
                while chunk := connection.recv(65536):
                    answer += chunk
            except (ConnectionResetError, BrokenPipeError):
                pass
        return answer

    return await anyio.to_thread.run_sync(talk)


HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"


@pytest.mark.parametrize("has_tls", [True, False])
async def test_a_body_that_goes_on_after_its_answer_is_not_read_for_good(tmp_path: Path, has_tls: bool) -> None:
    """The client can read the answer, and what is a little too much does not cost it its connection."""
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("too large", status_code=413)(scope, receive, send)

    def talk(port: int, count: int) -> tuple[int, bytes]:
        head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (count * len(PIECE))
        plain, sent = socket.create_connection(("127.0.0.1", port), timeout=10), 0
        with anything.wrap_socket(plain) if has_tls else plain as connection:
            connection.sendall(head)
            with contextlib.suppress(OSError):
                for sent in range(count):  # noqa: B007 - how far it came
                    connection.sendall(PIECE)
            answer = connection.recv(1000)
            with contextlib.suppress(OSError):
                connection.sendall(HEAD + b"\r\n")
                answer += connection.recv(1000)
        return sent, answer

    limits = Limits(discarded_bytes_max=20 * len(PIECE))
    listener, context = (
        bind("127.0.0.1", 0),
        Household(tmp_path).central().server_context("none") if has_tls else None,
    )
    async with http_server(refusing, [listener], Stopping(), context, limits=limits):
        port = listener.getsockname()[1]
        _, twice = await anyio.to_thread.run_sync(talk, port, 10)
        assert twice.count(b"HTTP/1.1 413") == 2
        sent, once = await anyio.to_thread.run_sync(talk, port, 10_000)
        assert sent < 1_000 and once.count(b"HTTP/1.1 413") == 1


async def test_a_usual_request_is_answered() -> None:
    async with serving(Limits()) as port:
        assert (await send(port, HEAD + b"\r\n")).endswith(b"hello, 0")


async def test_nothing_is_answered_once_the_protocol_has_changed() -> None:
    """As when a caller is removed whose tunnel is slow to close: the answer would go into the other protocol."""
    ended = anyio.Event()

    async def switching(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"][UPGRADE](lambda _: asyncio.Protocol(), {"upgrade": "something"})
        await Response("too late", status_code=401)(scope, receive, send)
        ended.set()
        scope["extensions"][ABORT]()

    listener = bind("127.0.0.1", 0)
    async with http_server(switching, [listener], Stopping(), limits=Limits()):
        answer = await send(listener.getsockname()[1], HEAD + b"\r\n")
    assert ended.is_set(), "it failed, which is logged as an internal error"
    assert b"101 Switching Protocols" in answer and b"too late" not in answer


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"X-Big: " + b"x" * 40_000 + b"\r\n\r\n",
        HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(5_000)) + b"\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        HEAD + b"X-Endless: " + b"x" * 4_000_000,
    ],
    ids=["one large header", "many headers", "a long path", "a header that never ends"],
)
async def test_an_oversized_head_is_refused(head: bytes) -> None:
    async with serving(Limits()) as port:
        pieces = [head[start : start + 60_000] for start in range(0, len(head), 60_000)]
        answer = await send(port, *pieces)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        assert b"hello" not in answer
        assert (await send(port, HEAD + b"\r\n")).endswith(b"hello, 0")


async def test_a_small_oversized_head_is_told_why() -> None:
    async with serving(Limits(head_bytes_max=1_000)) as port:
        answer = await send(port, HEAD + b"X-Big: " + b"x" * 2_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"application/problem+json" in answer


@pytest.mark.parametrize("begun", [b"", b"GET / HT", HEAD], ids=["nothing", "half a line", "no end"])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(begun: bytes) -> None:
    async with serving(Limits(head_seconds=0.3)) as port:
        began = time.monotonic()
        assert await send(port, begun) == b""
        assert time.monotonic() - began > 0.2


async def test_trickling_bytes_does_not_buy_time() -> None:
    async with serving(Limits(head_seconds=0.5)) as port:
        assert await send(port, *[b"GET / HTTP/1.1\r\n", *[b"X-A: b\r\n"] * 100, b"\r\n"], pause_seconds=0.1) == b""


async def test_a_body_that_trickles_ends_the_connection() -> None:
    async with serving(Limits(body_seconds=0.4)) as port:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        assert b"200 OK" not in await send(port, head, *[b"x"] * 1000, pause_seconds=0.01)


async def test_many_slow_connections_leave_others_unaffected() -> None:
    async with serving(Limits(head_seconds=60.0)) as port:
        slow = []
        try:
            for _ in range(200):
                slow.append(await anyio.to_thread.run_sync(socket.create_connection, ("127.0.0.1", port), 10))
                slow[-1].sendall(b"GET / HT")
            assert (await send(port, HEAD + b"\r\n")).endswith(b"hello, 0")
        finally:
            for each in slow:
                each.close()


def test_who_has_waited_for_too_long_is_left_out_before_the_handshake() -> None:
    """His own timeout comes next, and the handshake would be in vain. Without TLS there is none."""
    for has_tls in (True, False):
        with (
            bind("127.0.0.1", 0) as listener,
            socket.create_connection(listener.getsockname(), 10) as early,
        ):
            assert isinstance(listener, Listener)
            listener.has_tls, listener.waited_seconds_max = has_tls, 0.2
            early.sendall(b"what would be a ClientHello")
            time.sleep(0.4)
            with socket.create_connection(listener.getsockname(), 10) as late:
                accepted, address = listener.accept()
                with accepted:
                    assert address == (late if has_tls else early).getsockname()
                if has_tls:
                    with contextlib.suppress(ConnectionResetError):
                        assert early.recv(1) == b""


def test_a_herd_waits_in_the_system_and_not_for_tcp_to_try_again() -> None:
    """TCP tries again after 1, 3, 7, 15, 31 seconds: with few places, a server has nothing to do in between."""
    with bind("127.0.0.1", 0) as listener, contextlib.ExitStack() as stack:
        began = time.monotonic()
        for _ in range(1_500):
            stack.enter_context(socket.create_connection(listener.getsockname(), 10))
        assert time.monotonic() - began < 1.0, "one that finds no place takes a second or more"


async def test_of_many_that_come_at_once_a_few_are_accepted_before_the_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that a request on an open connection waits for a few handshakes, not for thousands."""
    step, made = 0, Counter[int]()
    connection_made = HttpConnection.connection_made

    def counted(self: HttpConnection, transport: asyncio.Transport) -> None:
        made[step] += 1
        connection_made(self, transport)

    monkeypatch.setattr(HttpConnection, "connection_made", counted)
    listener, app = bind("127.0.0.1", 0), Starlette()
    waiting = [socket.create_connection(listener.getsockname(), 10) for _ in range(5 * ACCEPTED_AT_ONCE)]
    try:
        async with http_server(app, [listener], Stopping(), limits=Limits()):
            while made.total() < len(waiting):
                step += 1
                await anyio.lowlevel.checkpoint()
    finally:
        for each in waiting:
            each.close()
    assert len(made) >= 5 and max(made.values()) <= ACCEPTED_AT_ONCE


async def test_no_handshake_is_made_with_who_has_hung_up_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted: list[HttpConnection] = []
    begin = HttpConnection.__init__

    def counted(self: HttpConnection, *given: Any, **named: Any) -> None:
        accepted.append(self)
        begin(self, *given, **named)

    monkeypatch.setattr(HttpConnection, "__init__", counted)
    listener, context = bind("127.0.0.1", 0), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for _ in range(20):
        with socket.create_connection(listener.getsockname(), 10) as gone:
            gone.sendall(b"what would be a ClientHello")
    async with http_server(Starlette(), [listener], Stopping(), context, limits=Limits()):
        await send(listener.getsockname()[1], b"no handshake either, but still there\r\n\r\n")
    assert len(accepted) == 1


async def test_there_is_an_end_to_the_number_of_connections_and_room_again_afterwards() -> None:
    async with serving(Limits(connections_max=5)) as port:
        held = [await anyio.to_thread.run_sync(socket.create_connection, ("127.0.0.1", port), 10) for _ in range(5)]
        assert await send(port, HEAD + b"\r\n") == b"", "connections are accepted in the order in which they came"
        for each in held:
            each.close()

        async def is_served() -> bool:
            return (await send(port, HEAD + b"\r\n")).endswith(b"hello, 0")

        await eventually(is_served, what="room for another one")


async def test_who_begins_no_handshake_counts_and_is_left_out_before_one() -> None:
    """Each holds an open file as long as a handshake may take: without an end to their number, a stranger without a
    certificate could use up those of the whole process."""
    listener, context = bind("127.0.0.1", 0), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    port = listener.getsockname()[1]
    async with http_server(Starlette(), [listener], Stopping(), context, limits=Limits(connections_max=5)):
        silent = [await anyio.to_thread.run_sync(socket.create_connection, ("127.0.0.1", port), 10) for _ in range(5)]
        await eventually(partial(anyio.to_thread.run_sync, is_left_out, port), what="the sixth to be closed at once")
        for each in silent:
            each.close()
        await eventually(partial(anyio.to_thread.run_sync, is_held, port), what="room again")


def is_left_out(port: int) -> bool:
    return not is_held(port)


def is_held(port: int) -> bool:
    """Whether a connection that says nothing is left open for a while; its handshake may take much longer."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.3) as connection:
        try:
            return connection.recv(1) != b""
        except ConnectionResetError:
            return False
        except TimeoutError:
            return True


@pytest.mark.parametrize("name", ["connections_max", "head_bytes_max", "head_seconds"])
def test_a_limit_of_nothing_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Limits(**{name: 0})
    assert [problem.field for problem in refused.value.problems] == [name]


async def test_a_role_serves_within_the_limits_it_was_given(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", limits=Limits(connections_max=3)) as (central, client):
        assert central.http_port is not None
        assert (await client.get("/healthz")).status == 200
        held = [
            await anyio.to_thread.run_sync(socket.create_connection, ("127.0.0.1", central.http_port), 10)
            for _ in range(2)
        ]
        assert await send(central.http_port, HEAD + b"\r\n") == b""
        for each in held:
            each.close()


async def test_ten_thousand_wrong_tokens_are_answered_cheaply_and_the_right_one_still_works(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (central, client):
        made = await central.parts.authenticator.tokens.create(INTERNAL, name="anna", role=Role.ADMIN)
        good = {"Authorization": f"Bearer {made.text}"}
        statuses: dict[int, int] = {}
        async with anyio.create_task_group() as tasks:
            for worker in range(8):
                tasks.start_soon(_guess, client, worker, made.token.id, statuses)
            await eventually(lambda: statuses, what="somebody to have guessed")
            assert (await client.get("/api/v1/sites", headers=good)).status == 200
            assert sum(statuses.values()) < GUESSES, "while the others still guess"
        assert sum(statuses.values()) == GUESSES
        assert set(statuses) <= {401, 429}
        assert statuses[429] > GUESSES * 0.9
        blocked = await client.get("/api/v1/sites", headers={"Authorization": "Bearer wrong"})
        assert (blocked.status, blocked.body["code"]) == (429, "too-many-attempts")
        assert 1 <= int(blocked.headers["retry-after"]) <= 300
        assert (await client.get("/api/v1/sites", headers=good)).status == 200
        assert (await client.get("/api/v1/sites")).status == 200
        trail = (await client.get("/api/v1/audit?limit=1000", headers=good)).body
        assert len(str(trail)) < 200_000, "a flood of guesses must not flood the audit trail"


async def _guess(client: Client, worker: int, token_id: str, statuses: dict[int, int]) -> None:
    """Half of them at one token's secret, half at anything."""
    async with aiohttp.ClientSession() as session:
        for number in range(GUESSES // 8):
            known = token_id if number % 2 else f"{worker:06x}{number:06x}"
            headers = {"Authorization": f"Bearer hp_{known}_{number:064x}"}
            async with session.get(client.url + "/api/v1/sites", headers=headers) as answer:
                await answer.read()
                statuses[answer.status] = statuses.get(answer.status, 0) + 1


async def test_a_connection_with_tls_takes_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no nodes connect: a fleet of Margo clients, say."""
    monkeypatch.setattr(SSLProtocol, "max_size", 256 * 1024)
    listener, context = bind("127.0.0.1", 0), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with http_server(Starlette(), [listener], Stopping(), context, limits=Limits()):
        assert SSLProtocol.max_size == TLS_BUFFER_BYTES == 16_645
