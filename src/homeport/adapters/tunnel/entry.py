"""The site's end of a node's tunnel, until it is one: an HTTP/1.1 request on the port of the gRPC service.

A node knows this port and no other, so both protocols are served there: a client with TLS says which one it speaks
(ALPN), a local one without TLS by its first bytes.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, Protocol

import anyio
import h11

from homeport.adapters.local_access import LocalKeys
from homeport.adapters.tunnel.connection import MuxConnection
from homeport.adapters.tunnel.dial import UPGRADE, set_timeouts
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.identity import Peer
from homeport.errors import HomeportError, NotAuthorized, NotFound, Refused, TransientError, Unauthenticated
from homeport.log import get_log
from homeport.ports import TunnelConnection
from homeport.vocabulary import NodeId

log = get_log("homeport.tunnel")

PREFACE: Final = b"GET "
PATH_PREFIX: Final = "/homeport.v1/nodes/"
PATH_SUFFIX: Final = "/tunnel"
REQUEST_SECONDS_MAX: Final = 10.0
HEAD_BYTES_MAX: Final = 16 * 1024
_STATUSES: Final = ((NotFound, HTTPStatus.NOT_FOUND), (TransientError, HTTPStatus.SERVICE_UNAVAILABLE))

Verify = Callable[[ssl.SSLObject], Peer | None]
OnRefused = Callable[[NewAudit], Awaitable[None]]


class TunnelReception(Protocol):
    """The site's side of its nodes' tunnels."""

    async def admit(self, node_id: NodeId, peer: Peer | None) -> None:
        """Raises NotAuthorized for a node that this peer is not, and for one that is not accepted."""
        ...

    def attach(self, node_id: NodeId, connection: TunnelConnection) -> Callable[[], None]:
        """Returns what to call when the connection is over."""
        ...


def tunnel_path(node_id: str) -> str:
    return f"{PATH_PREFIX}{node_id}{PATH_SUFFIX}"


class TunnelEntry(asyncio.Protocol):
    """One connection. With `local` instead of `verify`, the request has to present one of these keys."""

    def __init__(
        self,
        reception: TunnelReception,
        address: str,
        *,
        verify: Verify | None,
        local: LocalKeys | None,
        on_refused: OnRefused | None,
        on_made: Callable[["TunnelEntry"], None],
    ) -> None:
        self.lost = asyncio.Event()
        self.peer: Peer | None = None
        self._reception = reception
        self._address = address
        self._verify = verify
        self._local = local
        self._on_refused = on_refused
        self._on_made = on_made
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._request: h11.Request | None = None
        self._has_request = asyncio.Event()
        """Or the connection is lost."""
        self._transport: asyncio.Transport | None = None
        self._connection: MuxConnection | None = None

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        set_timeouts(transport.get_extra_info("socket"))
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError:
            self.abort()
            return
        if isinstance(event, h11.Request) and self._request is None:
            self._request = event
            self._has_request.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._has_request.set()

    # --- for the server ---

    async def serve(self) -> None:
        """Until the connection is over. Whatever it raises harms this connection alone."""
        try:
            await self._serve()
        except Exception:
            log.exception("tunnel connection failed with an internal error", address=self._address)

    async def _serve(self) -> None:
        try:
            with anyio.move_on_after(REQUEST_SECONDS_MAX):
                await self._has_request.wait()
            if self._request is None:
                return
            try:
                node_id = await self._admit(self._request)
            except HomeportError as error:
                await self._refuse(error)
                return
            forget = self._reception.attach(node_id, self._switch(f"node {node_id}"))
            try:
                await self.lost.wait()
            finally:
                forget()
        finally:
            self.close("the site is stopping")

    def close(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)
        elif self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _admit(self, request: h11.Request) -> NodeId:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        path = request.target.decode("latin-1")
        node_id = NodeId(path.removeprefix(PATH_PREFIX).removesuffix(PATH_SUFFIX))
        if path != tunnel_path(node_id) or headers.get("upgrade", "").lower() != UPGRADE:
            raise NotFound("This port serves gRPC, and tunnels of nodes.")
        self.peer = self._authenticated(headers)
        await self._reception.admit(node_id, self.peer)
        return node_id

    def _authenticated(self, headers: Mapping[str, str]) -> Peer | None:
        if self._verify is not None:
            assert self._transport is not None
            peer = self._verify(self._transport.get_extra_info("ssl_object"))
            if peer is None:
                raise NotAuthorized("This link needs a certificate, and none was shown.")
            return peer
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if self._local is not None and (scheme.lower() != "bearer" or self._local.kind_of(key.strip()) is None):
            raise Unauthenticated("This needs the local key: run it as the user who started this role.")
        return None

    def _switch(self, peer: str) -> MuxConnection:
        assert self._transport is not None
        self._transport.write(
            f"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: {UPGRADE}\r\n\r\n".encode()
        )
        connection = self._connection = MuxConnection(peer=peer, is_opener=True, on_lost=self.connection_lost)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        return connection

    async def _refuse(self, error: HomeportError) -> None:
        assert self._transport is not None
        if not isinstance(error, TransientError):
            log.warning("tunnel refused", address=self._address, why=str(error))
        if self._on_refused is not None and isinstance(error, Refused):
            name = "anonymous" if self.peer is None else self.peer.name
            detail = {"code": error.code, "why": str(error)}
            now = datetime.now(UTC)
            entry = NewAudit(now, name, "", self._address, "nodes.tunnel", "", AuditResult.REFUSED, detail)
            try:
                await self._on_refused(entry)
            except HomeportError as missed:  # a full disk, above all; the refusal stands
                log.warning("refused tunnel missing from the audit log", why=str(missed))
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.FORBIDDEN)
        body = json.dumps({"status": status.value, "code": error.code, "detail": str(error)}).encode()
        self._transport.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        self._transport.close()
