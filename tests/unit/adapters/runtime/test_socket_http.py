"""HTTP over a unix socket, with its limits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from homeport.adapters.network.http_client import Address, ExchangeFailed, UnixAddress, ask, stream
from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal
from homeport.errors import EngineUnavailable
from tests.support.listening import outliving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def answering(path: Path, *pieces: bytes, then_wait: bool = False) -> AsyncIterator[UnixAddress]:
    """A server that says the same to everybody."""

    async def serve(connection: anyio.abc.SocketStream) -> None:
        await connection.receive()
        for piece in pieces:
            await connection.send(piece)
        if then_wait:
            await anyio.sleep(60)

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, outliving(serve))
        yield UnixAddress(path)
        group.cancel_scope.cancel()


def api(address: Address) -> EngineApi:
    async def reach() -> Address:
        return address

    return EngineApi(reach)


async def test_a_whole_answer_is_read(tmp_path: Path) -> None:
    async with answering(tmp_path / "s", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"he", b"llo") as address:
        answer = await ask(address, "GET", "/x", query={"filters": '{"a": "b c"}'})
    assert (answer.status, answer.body) == (200, b"hello")


async def test_a_stream_is_read_as_it_comes(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with (
        answering(tmp_path / "s", head, b"3\r\none\r\n", b"3\r\ntwo\r\n0\r\n\r\n") as address,
        stream(address, "GET", "/", silence_seconds=5) as streaming,
    ):
        assert b"".join([chunk async for chunk in streaming.chunks()]) == b"onetwo"


async def test_silence_has_an_end(tmp_path: Path) -> None:
    async with answering(tmp_path / "s", then_wait=True) as address:
        with pytest.raises(ExchangeFailed, match="no answer within"):
            await ask(address, "GET", "/", seconds=0.1)


async def test_a_stream_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
    async with answering(tmp_path / "s", head, then_wait=True) as address:
        with pytest.raises(ExchangeFailed, match="no data for"):
            async with stream(address, "GET", "/", silence_seconds=0.1) as streaming:
                async for _ in streaming.chunks():
                    pass


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"])
async def test_an_answer_that_is_not_http_makes_the_engine_unavailable(tmp_path: Path, answer: bytes) -> None:
    async with answering(tmp_path / "s", answer) as address:
        with pytest.raises(EngineUnavailable, match="does not answer"):
            await api(address).version()


async def test_a_socket_nobody_listens_on_is_unavailable_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="No such file") as failure:
        await api(UnixAddress(tmp_path / "nothing")).version()
    assert failure.value.hint


async def test_a_refusal_carries_the_engines_own_words(tmp_path: Path) -> None:
    body = b'{"cause":"x","message":"no such container"}'
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with answering(tmp_path / "s", head + body) as address:
        with pytest.raises(EngineRefusal, match="no such container") as refusal:
            await api(address).inspect("x")
    assert refusal.value.status == 404


async def test_log_frames_are_unwrapped_even_when_cut(tmp_path: Path) -> None:
    frames = b"\x01\0\0\0\0\0\0\x04one\n" + b"\x02\0\0\0\0\0\0\x04two\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(frames)
    async with answering(tmp_path / "s", head, frames[:5], frames[5:14], frames[14:]) as address:
        lines = [chunk async for chunk in api(address).logs("x", tail=10, framed=True)]
    assert b"".join(lines) == b"one\ntwo\n"


async def test_a_container_that_is_removed_while_it_is_asked_for_is_not_there(tmp_path: Path) -> None:
    """Podman answers 500, with a reason that says so."""
    body = b'{"cause":"no such container","message":"container 4f2c does not exist in database: no such container"}'
    head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with answering(tmp_path / "s", head, body) as address:
        with pytest.raises(EngineRefusal) as refused:
            await api(address).inspect("4f2c")
    assert refused.value.status == 404
