"""HTTP/1.1 with as little work as possible, so that a measurement shows the server between two ends, not the ends."""

import asyncio
import re
from collections.abc import Mapping
from typing import cast

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_TOKENS = re.compile(rb'"max_tokens": *(\d+)')
_HELD = re.compile(rb'"model": *"held"')
_STREAMS = re.compile(rb'"stream": *true')
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"token"}}],"object":"chat.completion.chunk"}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}\n\ndata: [DONE]\n\n'
WHOLE = b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}'
HOLD = "held"
"""A model that is never done: whoever asks for it keeps its slot."""
MODELS = b'{"data":[]}'
WRITTEN_AT_ONCE = 50
"""Chunks of a stream that the engine has ready at the same time."""


def serve_engine(port: int) -> None:
    """An engine that answers at once. Runs until it is killed."""
    uvloop.install()
    asyncio.run(_serve(port))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Engine, "127.0.0.1", port)
    await server.serve_forever()


class _Engine(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end]
            found = _LENGTH.search(head)
            size = end + 4 + (int(found.group(1)) if found else 0)
            if len(self._received) < size:
                return
            body, self._received = self._received[end + 4 : size], self._received[size:]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if _HELD.search(body):
            return
        if not _STREAMS.search(body):
            content = MODELS if head.startswith(b"GET") else WHOLE
            self._transport.write(_whole(content))
            return
        found = _TOKENS.search(body)
        left = int(found.group(1)) if found else 1
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        while left > 0:
            count = min(left, WRITTEN_AT_ONCE)
            self._transport.write(b"".join([_part(CHUNK)] * count))
            left -= count
        self._transport.write(_part(USAGE) + b"0\r\n\r\n")


def _whole(content: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(content) + content


def _part(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def request(url: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """A POST as bytes."""
    host = url.removeprefix("http://")
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()] + [f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._done: asyncio.Future[bytes] | None = None
        self._first: asyncio.Future[None] | None = None
        self._received = bytearray()
        self._scanned = 0
        self._transport: asyncio.Transport

    @classmethod
    async def connect(cls, url: str) -> "Client":
        host, _, port = url.removeprefix("http://").partition(":")
        _, client = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, content: bytes) -> bytes:
        """The whole answer, head and body, as received."""
        await self.first_byte(content)
        return await self.rest()

    async def first_byte(self, content: bytes) -> None:
        """Returns when the body of the answer has begun."""
        loop = asyncio.get_running_loop()
        self._done, self._first = loop.create_future(), loop.create_future()
        self._received.clear()
        self._transport.write(content)
        await self._first

    async def rest(self) -> bytes:
        assert self._done is not None
        return await self._done

    def close(self) -> None:
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self._first, self._done):
            if each is not None and not each.done():
                each.set_exception(ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        end = received.find(b"\r\n\r\n")
        if end < 0 or self._first is None or self._done is None:
            return
        if not self._first.done() and len(received) > end + 4:
            self._first.set_result(None)
        if received.endswith(b"0\r\n\r\n"):
            is_whole = True
        else:
            found = _LENGTH.search(received, 0, end)
            is_whole = found is not None and len(received) >= end + 4 + int(found.group(1))
        if is_whole and not self._done.done():
            self._done.set_result(bytes(received))
