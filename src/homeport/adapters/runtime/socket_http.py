"""HTTP/1.1 over a unix socket or a TCP port: as much of it as container engines and health checks need.

One connection per exchange, because a local socket costs nothing and a connection shared by streams would need
rules about who may read. Every exchange has a deadline, or, for streams, a limit of silence.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import anyio
import anyio.abc
import h11

BODY_MAX = 16 * 1024 * 1024
"""The longest answer read as a whole. A listing of a thousand containers is some 2 MB."""


class ExchangeFailed(Exception):
    """The other end did not answer as HTTP, or not in time."""


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Address = UnixAddress | TcpAddress


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


class Streaming:
    """An answer whose head has arrived and whose body is still coming."""

    def __init__(self, exchange: "_Exchange", status: int, silence_seconds: float) -> None:
        self.status = status
        self._exchange = exchange
        self._silence_seconds = silence_seconds

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises ExchangeFailed after `silence_seconds` without a byte."""
        while True:
            try:
                with anyio.fail_after(self._silence_seconds):
                    event = await self._exchange.next_event()
            except TimeoutError as error:
                raise ExchangeFailed(f"no data for {self._silence_seconds:.0f} s") from error
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def read(self) -> bytes:
        content = bytearray()
        async for chunk in self.chunks():
            content += chunk
            if len(content) > BODY_MAX:
                raise ExchangeFailed(f"the answer is longer than {BODY_MAX} bytes")
        return bytes(content)


async def ask(
    address: Address,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: bytes = b"",
    seconds: float = 30.0,
) -> Answer:
    """One whole exchange within `seconds`. Raises OSError when nobody listens, ExchangeFailed otherwise."""
    try:
        with anyio.fail_after(seconds):
            async with stream(address, method, path, query=query, body=body, silence_seconds=seconds) as streaming:
                return Answer(streaming.status, await streaming.read())
    except TimeoutError as error:
        raise ExchangeFailed(f"no answer within {seconds:.0f} s") from error


@asynccontextmanager
async def stream(
    address: Address,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: bytes = b"",
    silence_seconds: float,
) -> AsyncIterator[Streaming]:
    """Opens an exchange whose body is read piece by piece; leaving the block closes the connection."""
    target = quote(path, safe="/:@?=&%+") + ("?" + urlencode(query) if query else "")
    async with await _connect(address) as connection:
        exchange = _Exchange(connection)
        try:
            with anyio.fail_after(silence_seconds):
                await exchange.send_request(method, target, str(address), body)
                status = await exchange.read_head()
        except TimeoutError as error:
            raise ExchangeFailed(f"no answer within {silence_seconds:.0f} s") from error
        yield Streaming(exchange, status, silence_seconds)


async def _connect(address: Address) -> anyio.abc.ByteStream:
    if isinstance(address, UnixAddress):
        return await anyio.connect_unix(address.path)
    return await anyio.connect_tcp(address.host, address.port)


class _Exchange:
    def __init__(self, connection: anyio.abc.ByteStream) -> None:
        self._connection = connection
        self._protocol = h11.Connection(h11.CLIENT)

    async def send_request(self, method: str, target: str, host: str, body: bytes) -> None:
        headers = [
            ("Host", "engine" if host.startswith("/") else host),
            ("Connection", "close"),
            ("Content-Length", str(len(body))),
        ]
        if body:
            headers.append(("Content-Type", "application/json"))
        parts = [self._protocol.send(h11.Request(method=method, target=target, headers=headers))]
        parts += [self._protocol.send(h11.Data(data=body))] if body else []
        parts.append(self._protocol.send(h11.EndOfMessage()))
        try:
            await self._connection.send(b"".join(part or b"" for part in parts))
        except anyio.BrokenResourceError as error:
            raise ExchangeFailed("the connection was closed") from error

    async def read_head(self) -> int:
        while True:
            event = await self.next_event()
            if isinstance(event, h11.Response):
                return event.status_code

    async def next_event(self) -> h11.Event:
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(await self._receive())
        except h11.RemoteProtocolError as error:
            raise ExchangeFailed(f"the answer is not HTTP: {error}") from error
        if isinstance(event, h11.Event):
            return event
        raise ExchangeFailed("the connection was closed")

    async def _receive(self) -> bytes:
        try:
            return await self._connection.receive(65536)
        except anyio.EndOfStream:
            return b""
        except anyio.BrokenResourceError as error:
            raise ExchangeFailed("the connection was closed") from error
