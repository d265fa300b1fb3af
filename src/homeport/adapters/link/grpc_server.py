"""Listens for gRPC calls with grpclib, on Python's TLS. Limits handshakes per address, connections per identity, and
connections in total. Independent of the services.
"""

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from homeport.adapters.link.grpc_connection import GrpcConnection, GrpcConnectionProtocol, Verify
from homeport.adapters.link.grpclib_seam import handler
from homeport.adapters.network.tls_buffers import use_small_tls_buffers
from homeport.adapters.system import room_for_connections
from homeport.adapters.tunnel.dial import ALPN
from homeport.adapters.tunnel.entry import PREFACE, TunnelEntry
from homeport.core.values.addresses import is_loopback
from homeport.errors import Refused
from homeport.log import get_log

log = get_log("homeport.link")

STOP_SECONDS: Final = 1.0
HANDSHAKE_SECONDS_MAX: Final = 5.0
HANDSHAKES_PER_ADDRESS_MAX: Final = 32
"""Maximum unauthenticated connections from one address."""
CONNECTIONS_PER_PEER_MAX: Final = 4
"""A node has one, and for a moment the previous one."""
UNANSWERED_SECONDS: Final = 15
SWEEP_SECONDS: Final = 0.5

Calls = Callable[[GrpcConnection], dict[str, Any]]
"""The calls that a client may make, by path."""
NewEntry = Callable[[str, Callable[[TunnelEntry], None]], TunnelEntry]
"""Creates the end of a tunnel, for an address; calls back when the connection is made."""


@asynccontextmanager
async def serve_grpc(
    calls: Calls,
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    verify: Verify | None = None,
    tunnels: NewEntry | None = None,
    takes_tokens: bool = False,
) -> AsyncIterator[int]:
    """Listens on `host:port`; yields the port. Port 0 takes any free one. Raises Refused when it is in use, or
    reachable from other machines without TLS. With `tunnels`, clients may ask for a tunnel instead. With
    `takes_tokens`, clients without a certificate may make the calls that authenticate them."""
    listener = _bind(address, is_open=tls is None)
    if tls is not None:
        assert verify is not None, "TLS without a look at the certificate would admit anybody it vouches for"
        use_small_tls_buffers()
        tls.set_alpn_protocols(["h2"] if tunnels is None else ["h2", ALPN])
    server = _Server(calls, tls, verify, tunnels, takes_tokens=takes_tokens)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.accept, listener)
            tasks.start_soon(server.sweep)
            try:
                yield listener.getsockname()[1]
            finally:
                tasks.cancel_scope.cancel()
                await server.close()


def _bind(address: str, *, is_open: bool) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if is_open and not is_loopback(host):
        raise Refused(
            f"Refusing to listen for nodes on {host or 'every address'} without TLS.",
            hint=f"Keep it local, --grpc 127.0.0.1:{port} , or give this role an identity first.",
        )
    try:
        family, _, _, _, bound = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(bound[:2], family=family, backlog=1024)
    except (OSError, ValueError) as error:
        raise Refused(
            f"Cannot listen for nodes on {address}: the address is in use or not ours.",
            hint="Choose another with --grpc, or stop what listens there: homeport doctor",
        ) from error
    listener.setblocking(False)
    return listener


class _Server:
    def __init__(
        self,
        calls: Calls,
        tls: ssl.SSLContext | None,
        verify: Verify | None,
        tunnels: NewEntry | None,
        *,
        takes_tokens: bool,
    ) -> None:
        self._calls = calls
        self._takes_tokens = takes_tokens
        self._tls = tls
        self._verify = verify
        self._tunnels = tunnels
        self._visits: dict[GrpcConnection, None] = {}
        """In the order of arrival."""
        self._unverified: Counter[str] = Counter()
        self._turned_away = 0
        self._connections_max = room_for_connections()

    async def accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as handshakes:
            while True:
                try:
                    raw, source = await loop.sock_accept(listener)
                except OSError as error:
                    log.warning("accepting a connection failed", error=str(error))
                    await anyio.sleep(0.2)
                    continue
                if self._has_room(source[0]):
                    handshakes.start_soon(self._handshake, raw, self._enter(source[0]), handshakes)
                else:
                    self._turned_away += 1
                    raw.close()
                # A backlog of connections is accepted without a pause; open ones need their turn too.
                await anyio.lowlevel.checkpoint()

    async def sweep(self) -> None:
        """Closes connections that have exceeded their time."""
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            now, wall = time.monotonic(), datetime.now(UTC)
            for visit in [*self._visits]:
                self._forget_if_lost(visit)
                why = visit.why_over(now, wall)
                if why is not None:
                    visit.end(why)
            if self._turned_away:
                log.warning("connections rejected", count=self._turned_away)
                self._turned_away = 0

    async def close(self) -> None:
        """Ends every call and connection, also unresponsive ones."""
        for visit in self._visits:
            if visit.tunnel is not None:
                visit.end("the site is stopping")
        visits = [visit for visit in self._visits if visit.protocol is not None]
        for visit in visits:
            visit.end("the site is stopping")
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            for visit in visits:
                assert visit.protocol is not None
                await visit.protocol.calls.wait_closed()
                await visit.protocol.lost.wait()
        for visit in visits:
            assert visit.protocol is not None
            if not visit.protocol.lost.is_set():  # Python before 3.11.5 fails when closing a closed connection.
                visit.protocol.transport.abort()

    def _has_room(self, host: str) -> bool:
        if self._tls is not None and self._unverified[host] >= HANDSHAKES_PER_ADDRESS_MAX:
            return False
        if len(self._visits) < self._connections_max:
            return True
        now = time.monotonic()
        idle = next((visit for visit in self._visits if visit.is_idle(now)), None)
        if idle is None:
            return False
        idle.end("room is needed for others")
        self._visits.pop(idle, None)
        return True

    def _enter(self, host: str) -> GrpcConnection:
        visit = GrpcConnection(host)
        self._visits[visit] = None
        self._unverified[host] += 1
        return visit

    async def _handshake(self, raw: socket.socket, visit: GrpcConnection, tasks: TaskGroup) -> None:
        limits = {"ssl_handshake_timeout": HANDSHAKE_SECONDS_MAX, "ssl_shutdown_timeout": STOP_SECONDS}

        def grpc() -> asyncio.Protocol:
            calls = handler(self._calls(visit))
            return GrpcConnectionProtocol(calls, visit, self._verify, self._arrived, takes_tokens=self._takes_tokens)

        def begin(entry: TunnelEntry) -> None:
            visit.tunnel = entry
            self._arrived(visit)
            tasks.start_soon(entry.serve)

        def tunnel() -> asyncio.Protocol:
            return grpc() if self._tunnels is None else self._tunnels(visit.address, begin)

        try:
            _set_options(raw)
            wants_tunnel = self._tls is None and self._tunnels is not None and await _asks_for_tunnel(raw)
            await asyncio.get_running_loop().connect_accepted_socket(
                (tunnel if wants_tunnel else grpc) if self._tls is None else lambda: _ByAlpn(grpc, tunnel),
                raw,
                ssl=self._tls,
                **(limits if self._tls else {}),
            )
        except OSError as error:
            log.info("handshake failed", address=visit.address, error=str(error))
        finally:
            self._unverified[visit.address] -= 1
            if not self._unverified[visit.address]:
                del self._unverified[visit.address]
            if visit.protocol is None and visit.tunnel is None:
                self._visits.pop(visit, None)
                raw.close()

    def _arrived(self, visit: GrpcConnection) -> None:
        """The newest connections of a peer stay: a peer that reconnects has given up the earlier ones."""
        if visit.peer is None:
            return  # A tunnel is limited where it is attached.
        same = [each for each in self._visits if each.peer and each.peer.spiffe_id == visit.peer.spiffe_id]
        for older in same[:-CONNECTIONS_PER_PEER_MAX]:
            older.end("replaced by newer connections of the same peer")

    def _forget_if_lost(self, visit: GrpcConnection) -> None:
        if visit.is_lost():
            self._visits.pop(visit, None)


class _ByAlpn(asyncio.Protocol):
    """Takes the protocol that the client named in the TLS handshake."""

    def __init__(self, grpc: Callable[[], asyncio.Protocol], tunnel: Callable[[], asyncio.Protocol]) -> None:
        self._grpc = grpc
        self._tunnel = tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        chosen = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        protocol = (self._tunnel if chosen == ALPN else self._grpc)()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


async def _asks_for_tunnel(raw: socket.socket) -> bool:
    """Whether a local client begins like HTTP/1.1. Nothing is consumed."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(raw.fileno(), readable.set)
    try:
        with anyio.move_on_after(HANDSHAKE_SECONDS_MAX):
            await readable.wait()
    finally:
        loop.remove_reader(raw.fileno())
    try:
        return raw.recv(len(PREFACE), socket.MSG_PEEK) == PREFACE
    except OSError:
        return False


def _set_options(raw: socket.socket) -> None:
    """Sets TCP_USER_TIMEOUT for a peer that no longer responds; the kernel's default is a quarter of an hour."""
    raw.setblocking(False)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_SECONDS * 1000)
