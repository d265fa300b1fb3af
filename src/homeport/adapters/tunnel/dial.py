"""Opens a tunnel: a connection, an HTTP/1.1 request to switch protocols, and from then on frames.

The peer is verified before anything is sent. Without aiohttp, since a node's process does without it.
"""

import asyncio
import base64
import hashlib
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import h11

from homeport.adapters.tunnel.connection import MuxConnection
from homeport.lazy_dataclass import dataclass

UPGRADE: Final = "homeport-tunnel"
"""The protocol that roles switch to; people's commands use `websocket`."""
ALPN: Final = "http/1.1"
DIAL_SECONDS_MAX: Final = 15.0
UNANSWERED_SECONDS: Final = 20
"""How long sent bytes may stay unacknowledged (TCP_USER_TIMEOUT)."""
CLOSE_SECONDS_MAX: Final = 1.0
REFUSAL_BYTES_MAX: Final = 64 * 1024
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

Verify = Callable[[ssl.SSLObject], object]
"""Raises Refused unless the peer is the expected one."""


class UpgradeRefused(Exception):
    """The server answered with something else than a tunnel."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a tunnel is asked for."""

    host: str
    port: int
    path: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    verify: Verify | None = None
    is_websocket: bool = False


async def dial(door: Door, connection: MuxConnection) -> None:
    """Connects, and hands the line to `connection`. Raises UpgradeRefused, OSError, TimeoutError, and what `verify`
    raises."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DIAL_SECONDS_MAX):
        transport, handshake = await loop.create_connection(
            lambda: _Handshake(door, connection),
            door.host,
            door.port,
            ssl=door.tls,
            server_hostname=(door.server_name or door.host) if door.tls else None,
            ssl_handshake_timeout=DIAL_SECONDS_MAX if door.tls else None,
            ssl_shutdown_timeout=CLOSE_SECONDS_MAX if door.tls else None,
        )
        try:
            set_timeouts(transport.get_extra_info("socket"))
            if door.verify is not None:
                door.verify(transport.get_extra_info("ssl_object"))
            handshake.ask()
            await handshake.done
        except BaseException:
            transport.abort()
            raise


def set_timeouts(raw: socket.socket) -> None:
    if raw.family == socket.AF_UNIX:
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_SECONDS * 1000)


def accept_value(key: str) -> str:
    """A WebSocket server's proof that it has read the request (RFC 6455, section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


class _Handshake(asyncio.Protocol):
    def __init__(self, door: Door, connection: MuxConnection) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # It may fail when no caller waits any more: while TLS is set up, or after the peer was refused.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._door = door
        self._connection = connection
        self._http = h11.Connection(h11.CLIENT)
        self._key = base64.b64encode(secrets.token_bytes(16)).decode()
        self._transport: asyncio.Transport | None = None
        self._status = 0
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self) -> None:
        assert self._transport is not None
        door = self._door
        shown = f"[{door.host}]" if ":" in door.host else door.host
        headers = {"Host": f"{shown}:{door.port}", "Connection": "Upgrade", **door.headers}
        if door.is_websocket:
            headers |= {"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": self._key}
        else:
            headers["Upgrade"] = UPGRADE
        request = h11.Request(method="GET", target=door.path, headers=list(headers.items()))
        self._transport.write((self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b""))

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError:
            self._fail(UpgradeRefused(0, b""))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if exc is not None else ConnectionResetError("the connection was closed"))

    def _take(self, event: object) -> bool:
        """Whether to look for another event."""
        match event:
            case h11.InformationalResponse() if event.status_code == 101:
                self._switch(dict(event.headers))
                return False
            case h11.Response():
                self._status = event.status_code
                return True
            case h11.Data():
                self._body += event.data
                return len(self._body) <= REFUSAL_BYTES_MAX or self._end()
            case h11.EndOfMessage():
                return self._end()
            case h11.InformationalResponse():
                return True
        return False

    def _end(self) -> bool:
        self._fail(UpgradeRefused(self._status, bytes(self._body[:REFUSAL_BYTES_MAX])))
        return False

    def _switch(self, headers: dict[bytes, bytes]) -> None:
        assert self._transport is not None
        expected = accept_value(self._key).encode()
        if self._door.is_websocket and headers.get(b"sec-websocket-accept") != expected:
            self._fail(UpgradeRefused(101, b""))
            return
        early = self._http.trailing_data[0]
        self._transport.set_protocol(self._connection)
        self._connection.connection_made(self._transport)
        if early:
            self._connection.data_received(early)
        if not self.done.done():
            self.done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
        if self._transport is not None:
            self._transport.abort()
