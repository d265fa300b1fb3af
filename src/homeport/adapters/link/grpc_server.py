"""Listens for gRPC calls with grpclib, on Python's TLS. Bounds what strangers can hold: handshakes per address,
connections per identity, connections in all. Knows nothing of what the calls mean.
"""

import asyncio
import logging
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import anyio.lowlevel
from grpclib.encoding.proto import ProtoCodec
from grpclib.events import _DispatchServerEvents
from grpclib.server import Handler

from homeport.adapters.link.visits import Verify, Visit, VisitProtocol
from homeport.adapters.system import room_for_connections
from homeport.core.addresses import is_loopback
from homeport.errors import Refused

log = logging.getLogger("homeport.link")

STOP_SECONDS: Final = 1.0
HANDSHAKE_SECONDS_MAX: Final = 5.0
HANDSHAKES_PER_ADDRESS_MAX: Final = 32
"""Connections from one address that have not said who they are."""
CONNECTIONS_PER_PEER_MAX: Final = 4
"""A node has one, and for a moment the one before it."""
UNANSWERED_SECONDS: Final = 15
SWEEP_SECONDS: Final = 0.5
TLS_BUFFER_BYTES: Final = 32 * 1024
"""Two TLS records. asyncio takes 256 KiB for every connection, which is a quarter of a gigabyte for 1,000 nodes that
say a few bytes now and then. It has no parameter for it, only this attribute, which holds for the whole process."""
SSLProtocol.max_size = TLS_BUFFER_BYTES

Service = Callable[[Visit], dict[str, Any]]
"""The calls that a visitor may make, by path."""


@asynccontextmanager
async def serve_grpc(
    service: Service, address: str, *, tls: ssl.SSLContext | None = None, verify: Verify | None = None
) -> AsyncIterator[int]:
    """Listens on `host:port`; yields the port. Port 0 takes any free one. Raises Refused when it is busy, or open to
    other machines without TLS."""
    listener = _bind(address, is_open=tls is None)
    if tls is not None:
        assert verify is not None, "TLS without a look at the certificate would admit anybody it vouches for"
        tls.set_alpn_protocols(["h2"])
    server = _Server(service, tls, verify)
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
    def __init__(self, service: Service, tls: ssl.SSLContext | None, verify: Verify | None) -> None:
        self._service = service
        self._tls = tls
        self._verify = verify
        self._visits: dict[Visit, None] = {}
        """In the order of arrival."""
        self._strangers: Counter[str] = Counter()
        self._turned_away = 0
        self._connections_max = room_for_connections()

    async def accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as handshakes:
            while True:
                try:
                    raw, source = await loop.sock_accept(listener)
                except OSError as error:
                    log.warning("cannot take a connection", extra={"error": str(error)})
                    await anyio.sleep(0.2)
                    continue
                if self._has_room(source[0]):
                    handshakes.start_soon(self._shake_hands, raw, self._enter(source[0]))
                else:
                    self._turned_away += 1
                    raw.close()
                # A queue of connections is accepted without a pause; those inside have to get their turn too.
                await anyio.lowlevel.checkpoint()

    async def sweep(self) -> None:
        """Ends visits whose time is over."""
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            now, wall = time.monotonic(), datetime.now(UTC)
            for visit in [*self._visits]:
                self._forget_if_lost(visit)
                why = visit.why_over(now, wall)
                if why is not None:
                    visit.end(why)
            if self._turned_away:
                log.warning("connections turned away", extra={"count": self._turned_away})
                self._turned_away = 0

    async def close(self) -> None:
        """Ends every call and connection, those that do not listen too."""
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
            if not visit.protocol.lost.is_set():  # Python before 3.11.5 stumbles over ending what has ended.
                visit.protocol.transport.abort()

    def _has_room(self, host: str) -> bool:
        if self._tls is not None and self._strangers[host] >= HANDSHAKES_PER_ADDRESS_MAX:
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

    def _enter(self, host: str) -> Visit:
        visit = Visit(host)
        self._visits[visit] = None
        self._strangers[host] += 1
        return visit

    async def _shake_hands(self, raw: socket.socket, visit: Visit) -> None:
        limits = {"ssl_handshake_timeout": HANDSHAKE_SECONDS_MAX, "ssl_shutdown_timeout": STOP_SECONDS}
        try:
            _set_options(raw)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: VisitProtocol(self._calls(visit), visit, self._verify, self._arrived),
                raw,
                ssl=self._tls,
                **(limits if self._tls else {}),
            )
        except OSError as error:
            log.info("handshake failed", extra={"address": visit.address, "error": str(error)})
        finally:
            self._strangers[visit.address] -= 1
            if not self._strangers[visit.address]:
                del self._strangers[visit.address]
            if visit.protocol is None:
                self._visits.pop(visit, None)
                raw.close()

    def _calls(self, visit: Visit) -> Handler:
        return Handler(self._service(visit), ProtoCodec(), None, _DispatchServerEvents())

    def _arrived(self, visit: Visit) -> None:
        """The newest connections of a peer stay: whoever dials again has given up the ones before."""
        if visit.peer is None:
            return
        same = [each for each in self._visits if each.peer and each.peer.spiffe_id == visit.peer.spiffe_id]
        for older in same[:-CONNECTIONS_PER_PEER_MAX]:
            older.end("replaced by newer connections of the same peer")

    def _forget_if_lost(self, visit: Visit) -> None:
        if visit.protocol is not None and visit.protocol.lost.is_set():
            self._visits.pop(visit, None)


def _set_options(raw: socket.socket) -> None:
    """Has the kernel give up on a peer that no longer answers; by default that takes a quarter of an hour."""
    raw.setblocking(False)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_SECONDS * 1000)
