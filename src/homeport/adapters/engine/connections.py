"""Connections to an engine over plain HTTP/1.1, kept open between requests.

For the usual request to an engine on this machine or network: one write, and a parser in C that hands the answer on
as it arrives. It takes less than half of the CPU time of a general HTTP client, which is the largest part of passing
a request through. What is large, encrypted or tunnelled goes through the general one.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import httptools

BUFFER_BYTES_MAX: Final = 256 * 1024
"""Beyond this nothing more is read until what is there was taken."""
HEAD_BYTES_MAX: Final = 64 * 1024
_NOT_IN_HEADER: Final = str.maketrans("", "", "\r\n\0")


class ConnectionReused(ConnectionResetError):
    """The engine closed a kept connection before it answered: the request may be sent again on a new one."""


class Connections:
    """To one address, made as they are needed."""

    def __init__(
        self, host: str, port: int, *, connect_seconds: float, silent_seconds: float, kept_seconds: float
    ) -> None:
        """`silent_seconds` is how long the engine may say nothing, `kept_seconds` how long one that is not used stays
        open."""
        self._address = host, port
        self._host = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._connect_seconds = connect_seconds
        self.silent_seconds = silent_seconds
        self.kept_seconds = kept_seconds
        self._idle: deque[EngineConnection] = deque()
        self._is_closed = False

    async def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, is_again: bool = False
    ) -> "EngineConnection":
        """Returns when the head of the answer is there. Raises OSError, TimeoutError, ConnectionReused; the last not
        when it is sent again."""
        lines = "".join(f"{name}: {value.translate(_NOT_IN_HEADER)}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        connection = None if is_again else self._kept()
        if connection is None:
            connection = await self._connected()
        try:
            await connection.ask(head.encode("latin-1", "replace") + body)
        except BaseException:
            connection.leave()
            raise
        return connection

    def keep(self, connection: "EngineConnection") -> None:
        if self._is_closed:
            connection.abort()
        else:
            self._idle.append(connection)

    def forget(self, connection: "EngineConnection") -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        self._is_closed = True
        for connection in list(self._idle):
            connection.abort()

    def _kept(self) -> "EngineConnection | None":
        """The one that was used last: it is the least likely to be closed by the engine in this moment."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.abort()
        return None

    async def _connected(self) -> "EngineConnection":
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_seconds):
            _, connection = await loop.create_connection(lambda: EngineConnection(self, loop), *self._address)
        return connection


class EngineConnection(asyncio.Protocol):
    """One request after the other. Its holder reads the answer of the last, and leaves it."""

    status: int
    headers: Mapping[str, str]

    def __init__(self, pool: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._count = 0
        """Requests so far."""
        self._error: BaseException | None = None
        self._is_paused = False
        self._begin()

    def _begin(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._found: dict[str, str] = {}
        self._head_bytes = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._has_head = self._is_complete = self._is_left = self._may_be_kept = False

    # --- callers -----------------------------------------------------------------------------------------------

    @property
    def is_fresh(self) -> bool:
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and self._loop.time() - self._heard_at < self._pool.kept_seconds

    async def ask(self, content: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionReused("the engine closed the connection")
        if self._count:
            self._begin()
        self._count += 1
        self._heard_at = self._loop.time()
        self._transport.write(content)
        while not self._has_head:
            await self._wait()
        self.headers = self._found

    async def read(self) -> bytes:
        """What has arrived of the body; empty at its end."""
        while not self._parts:
            if self._is_complete:
                return b""
            self._heard_at = self._loop.time()
            await self._wait()
        content = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return content

    def leave(self) -> None:
        """Kept for the next request where the answer is whole; else it is cut, which ends the work in the engine."""
        if self._is_left:
            return
        self._is_left = True
        is_open = self._transport is not None and not self._transport.is_closing()
        if is_open and self._is_complete and self._may_be_kept and not self._is_paused:
            self._heard_at = self._loop.time()
            self._pool.keep(self)
        else:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # --- the loop -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(self._pool.silent_seconds, self._look)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        if self._is_left or self._is_complete:
            self._fail(ConnectionResetError("the engine sent more than was requested"))
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionResetError(f"the engine's answer is not HTTP: {error}"))
            return
        if not self._has_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail(ConnectionResetError("the head of the engine's answer is too large"))
            return
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._pool.forget(self)
        lengths = ("content-length", "transfer-encoding")
        if self._has_head and error is None and not any(name in self._found for name in lengths):
            self._is_complete = True  # Such an answer ends with its connection.
        if not self._is_complete and self._error is None:
            is_unused = self._count > 1 and not self._has_head and not self._head_bytes
            kind = ConnectionReused if is_unused else ConnectionResetError
            self._error = kind("the engine closed the connection")
        self._wake()

    def _look(self) -> None:
        """One timer for all requests of the connection."""
        now, pool = self._loop.time(), self._pool
        limit = pool.kept_seconds if self._is_left else pool.silent_seconds
        left = self._heard_at + limit - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        elif self._is_left:
            self.abort()
        elif self._waiter is not None:
            self._fail(TimeoutError("the engine does not answer"))
        else:
            # The answer waits for its reader.
            self._timer = self._loop.call_later(pool.silent_seconds, self._look)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self.abort()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._error is not None and not self._parts and not self._is_complete:
            waiter.set_exception(self._error)
        else:
            waiter.set_result(None)

    # --- the parser ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_complete:
            self._may_be_kept = False  # What follows an answer belongs to nothing that was asked.

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # A trailer says nothing that is passed on.
            self._found[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._has_head:
            self._found = self._found if self._has_head else {}  # the answer itself follows
            return
        self.status = status
        self._has_head, self._may_be_kept = True, self._parser.should_keep_alive()

    def on_body(self, content: bytes) -> None:
        if self._is_complete:
            return
        self._parts.append(content)
        self._size += len(content)
        if self._size > BUFFER_BYTES_MAX and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_complete = self._has_head
