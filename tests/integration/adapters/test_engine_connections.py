"""Our own connections to engines, against servers that answer byte by byte as a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from homeport.adapters.engine.connections import BUFFER_BYTES_MAX
from homeport.adapters.engine.http import HttpEngine, PlainExchange
from homeport.adapters.engine.openai import DIALECT
from homeport.core.inference.task import TaskCode
from homeport.ports.engine import EngineFailed, OpenExchange
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Write = Callable[[bytes], Awaitable[None]]
Answer = Callable[[bytes, Write], Awaitable[bool]]
"""Of a request; whether the connection stays open."""


@dataclass
class Server:
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    found = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        found.open_connections += 1

        async def write(content: bytes) -> None:
            writer.write(content)
            await writer.drain()

        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                request = head + await reader.readexactly(length)
                found.requests.append(request)
                if not await answer(request, write):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            found.open_connections -= 1
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()


@asynccontextmanager
async def engine_at(url: str, idle_seconds: float = 20.0) -> AsyncIterator[HttpEngine]:
    engine = HttpEngine(DIALECT, url, "m", idle_seconds=idle_seconds)
    try:
        yield engine
    finally:
        await engine.close()


async def asked(engine: HttpEngine, body: bytes = b"{}") -> tuple[int, bytes]:
    exchange = await engine.open("POST", "/v1/x", body, {"accept": "*/*"})
    try:
        return exchange.status, await whole(exchange)
    finally:
        exchange.close()


async def whole(exchange: OpenExchange) -> bytes:
    return b"".join([chunk async for chunk in exchange.chunks()])


async def test_requests_after_one_another_use_one_connection_and_say_what_they_are() -> None:
    async def answer(request: bytes, write: Write) -> bool:
        await write(OK)
        return True

    async with serving(answer) as server, engine_at(f"{server.url}/v1") as engine:
        assert [await asked(engine, b'{"a":1}') for _ in range(3)] == [(200, b"{}")] * 3
        assert server.connections == 1
        lines = server.requests[0].decode().split("\r\n")
        assert lines[0] == "POST /v1/x HTTP/1.1"
        assert {f"Host: {server.url[7:]}", "content-type: application/json", "accept: */*"} < set(lines)
        assert lines[-1] == '{"a":1}'
    await eventually(lambda: server.open_connections == 0, what="the connection to end with the engine")


async def test_a_kept_connection_that_the_engine_closed_is_replaced_and_the_request_sent_again() -> None:
    async def answer(request: bytes, write: Write) -> bool:
        if server.connections == 1 and len(server.requests) == 2:
            return False  # As an engine that closes an idle connection in this very moment.
        await write(OK)
        return True

    async with serving(answer) as server, engine_at(server.url) as engine:
        assert [await asked(engine) for _ in range(2)] == [(200, b"{}")] * 2
        assert (server.connections, len(server.requests)) == (2, 3)


async def test_an_engine_that_closes_a_new_connection_is_not_asked_again() -> None:
    async def answer(request: bytes, write: Write) -> bool:
        return False

    async with serving(answer) as server, engine_at(server.url) as engine:
        with pytest.raises(EngineFailed, match="closed the connection"):
            await asked(engine)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "stays", "expected"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, True, (200, b"{}")),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it closes", False, (200, b"until it closes")),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil it closes", False, (200, b"until it closes")),
        (CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n", True, (200, b"abcde")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True, (204, b"")),
        (b"HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", False, (500, b"no")),
        (OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", True, (200, b"{}")),
    ],
)
async def test_every_form_of_an_answer_is_read_to_its_end_in_pieces_of_any_size(
    content: bytes, stays: bool, expected: tuple[int, bytes]
) -> None:
    size = len(content)

    async def answer(request: bytes, write: Write) -> bool:
        for start in range(0, len(content), size):
            await write(content[start : start + size])
            await asyncio.sleep(0)
        return stays

    async with serving(answer) as server, engine_at(server.url) as engine:
        assert await asked(engine) == expected
        size = 7
        assert await asked(engine) == expected, "after whatever was left on the connection before"


@pytest.mark.parametrize(
    "content",
    [
        b"this is no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        CHUNKED + b"5\r\nab",
        CHUNKED + b"zz\r\nab",
        b"HTTP/1.1 200 OK\r\n" + b"X-Long: y\r\n" * 20_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
async def test_what_is_no_answer_or_half_of_one_is_the_engines_failure(content: bytes) -> None:
    async def answer(request: bytes, write: Write) -> bool:
        await write(content)
        return False

    async with serving(answer) as server, engine_at(server.url) as engine:
        with pytest.raises(EngineFailed) as failed:
            await asked(engine)
        assert failed.value.task_code is TaskCode.WORKER_RESET


@pytest.mark.parametrize("said", [b"", OK[:-1]])
async def test_an_engine_that_falls_silent_is_a_timeout(said: bytes) -> None:
    async def answer(request: bytes, write: Write) -> bool:
        await write(said)
        await asyncio.sleep(60)
        return True

    async with serving(answer) as server, engine_at(server.url, idle_seconds=0.3) as engine:
        with anyio.fail_after(30), pytest.raises(EngineFailed) as failed:
            await asked(engine)
        assert failed.value.task_code is TaskCode.DECODE_TIMEOUT


async def test_leaving_an_answer_that_goes_on_closes_its_connection() -> None:
    async def answer(request: bytes, write: Write) -> bool:
        await write(CHUNKED)
        while True:
            await write(b"2\r\nhi\r\n")
            await asyncio.sleep(0.01)

    async with serving(answer) as server, engine_at(server.url) as engine:
        exchange = await engine.open("POST", "/v1/x", b"{}", {})
        assert isinstance(exchange, PlainExchange)
        async for chunk in exchange.chunks():
            assert chunk.startswith(b"hi")
            break
        exchange.close()
        await eventually(lambda: server.open_connections == 0, what="the engine to see it")


async def test_an_answer_that_nobody_reads_waits_in_the_engine_and_not_in_memory() -> None:
    sent = 0
    piece = b"x" * 65_536

    async def answer(request: bytes, write: Write) -> bool:
        nonlocal sent
        await write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (400 * len(piece)))
        for _ in range(400):
            await write(piece)
            sent += len(piece)
        return True

    async with serving(answer) as server, engine_at(server.url) as engine:
        exchange = await engine.open("POST", "/v1/x", b"{}", {})
        assert isinstance(exchange, PlainExchange)
        connection = exchange._connection
        await eventually(lambda: connection._is_paused, what="the reading to stop")
        assert connection._size <= BUFFER_BYTES_MAX + 1024**2
        assert sent < 400 * len(piece)
        assert len(await whole(exchange)) == 400 * len(piece)
        exchange.close()
        assert await asked_status(engine) == 200
        assert server.connections == 1, "it is kept like any other"


async def asked_status(engine: HttpEngine) -> int:
    exchange = await engine.open("POST", "/v1/x", b"{}", {})
    try:
        await whole(exchange)
        return exchange.status
    finally:
        exchange.close()
