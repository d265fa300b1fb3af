"""The TLS of our servers: whatever way bytes come in, the application gets them as they were sent, and once."""

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homeport.adapters.network.tls_records import TlsRecords
from tests.support.certificates import forge, forge_root, trusting_context, write_files

pytestmark = pytest.mark.anyio
LARGE = 300_000


class Echo(asyncio.Protocol):
    """Answers each piece with what came, and a large answer to `!`."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.has_ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self.transport.write(b"x" * LARGE if data == b"!" else data)

    def eof_received(self) -> None:
        self.has_ended.set()


class Line:
    """A client whose bytes go to the server as the test cuts them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting_context().wrap_bio(self._in, self._out)

    def sealed(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self._out.read()

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()

    async def shake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(self._out.read())
                self._in.write(await self._reader.read(65536))
            else:
                return await self.send(self._out.read())

    async def received(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            try:
                found += self.tls.read(65536)
            except ssl.SSLWantReadError:
                self._in.write(await self._reader.read(65536))
        return found

    def close_notify(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._out.read()


@asynccontextmanager
async def line(folder: Path) -> AsyncIterator[tuple[Line, Echo]]:
    files = write_files(folder / "server", forge(forge_root()), anchors=[])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "svid-cert.pem", files / "svid-key.pem")
    loop, echo = asyncio.get_running_loop(), Echo()
    server = await loop.create_server(lambda: TlsRecords(loop, echo, context, None, True), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        found = Line(reader, writer)
        await found.shake()
        yield found, echo
    finally:
        writer.close()
        server.close()


async def test_records_in_any_pieces_are_the_same_bytes(tmp_path: Path) -> None:
    async with line(tmp_path) as (client, echo):
        one, two, three = (client.sealed(text) for text in (b"one", b"two", b"three"))
        await client.send(one)
        assert await client.received(3) == b"one"
        await client.send(two + three[:7])  # a record, and the beginning of the next
        assert await client.received(3) == b"two"
        for at in range(7, len(three)):
            await client.send(three[at : at + 1])
            await asyncio.sleep(0)
        assert await client.received(5) == b"three"
        await client.send(client.sealed(b"a") + client.sealed(b"b" * 40_000))
        assert await client.received(40_001) == b"a" + b"b" * 40_000
        assert b"".join(echo.pieces) == b"onetwothree" + b"a" + b"b" * 40_000


async def test_an_answer_that_is_larger_than_all_buffers_arrives_whole(tmp_path: Path) -> None:
    async with line(tmp_path) as (client, echo):
        await client.send(client.sealed(b"!"))
        assert await client.received(LARGE) == b"x" * LARGE
        echo.transport.writelines([b"of ", b"two"])
        assert await client.received(6) == b"of two"


@pytest.mark.parametrize("together", [True, False])
async def test_the_end_is_noticed_also_behind_a_record(tmp_path: Path, together: bool) -> None:
    async with line(tmp_path) as (client, echo):
        last = client.sealed(b"last")
        end = client.close_notify()
        await client.send(last + end) if together else await client.send(last, end)
        await asyncio.wait_for(echo.has_ended.wait(), 30)
        assert echo.pieces == [b"last"]


async def test_bytes_that_are_no_record_end_the_connection(tmp_path: Path) -> None:
    async with line(tmp_path) as (client, echo):
        await client.send(client.sealed(b"one"), b"\x17\x03\x03\x00\x10" + b"?" * 16)
        await asyncio.wait_for(client._reader.read(), 30)
        assert echo.transport.is_closing()


def test_these_are_methods_that_asyncio_calls() -> None:
    for name in ("_on_handshake_complete", "_do_read", "_do_read__copied", "_write_appdata"):
        assert getattr(TlsRecords, name) is not getattr(sslproto.SSLProtocol, name)
