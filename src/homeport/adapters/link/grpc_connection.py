"""One connection of the gRPC server: the authenticated peer, and limits that grpclib does not have.

A client whose certificate is refused may stay connected for a moment, so that it receives the reason as text: a TLS
alert cannot carry one.
"""

import ssl
import time
from asyncio import BaseTransport, Event, Transport
from collections.abc import Callable
from dataclasses import field
from datetime import datetime
from typing import Final, cast

from grpclib.protocol import H2Protocol
from grpclib.server import Handler
from h2.config import H2Configuration
from h2.settings import SettingCodes

from homeport.adapters.link.grpclib_seam import with_pings
from homeport.adapters.tunnel.entry import TunnelEntry
from homeport.core.model.identity import Peer
from homeport.errors import NotAuthorized, Refused
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log

log = get_log("homeport.link")

Verify = Callable[[ssl.SSLObject], Peer | None]
"""The peer, by its certificate; None for one without a certificate. Raises Refused for an invalid one."""

CALLS_MAX: Final = 16
"""Maximum open calls of one connection. A node needs two at most."""
BROKEN_CALLS_MAX: Final = 200
"""After this many reset calls a connection counts as an attack, or broken."""
UNREAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum unsent bytes for a peer that does not read, including replies to its pings."""
WINDOW_BYTES: Final = 256 * 1024
"""How many bytes a peer may send before we have read them (flow-control window)."""
NO_CERTIFICATE: Final = "This call is for machines: it needs a certificate, and none was shown."
REFUSED_SECONDS_MAX: Final = 2.0
IDLE_SECONDS_MAX: Final = 60.0

# A connection that died silently is detected by ping, not by the next order.
CONFIGURATION: Final = with_pings(
    10.0,
    5.0,
    5.0,
    _keepalive_permit_without_calls=True,
    http2_connection_window_size=WINDOW_BYTES,
    http2_stream_window_size=WINDOW_BYTES,
).__for_server__()

_H2: Final = H2Configuration(
    client_side=False,
    header_encoding="utf-8",
    validate_inbound_headers=True,
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)


@dataclass(slots=True, eq=False)
class GrpcConnection:
    address: str
    opened: float = field(default_factory=time.monotonic)
    peer: Peer | None = None
    refusal: Refused | None = None
    protocol: "GrpcConnectionProtocol | None" = None
    """None until the handshake is over."""
    tunnel: TunnelEntry | None = None
    """Instead of gRPC, where the client asked for a tunnel."""
    has_no_certificate: bool = False
    """On a link where people are authenticated by each call: it may make their calls, and none of a machine."""

    def admitted(self) -> Peer | None:
        """The peer, or None on a link without authentication. Raises the error for the client otherwise."""
        if self.refusal is not None:
            raise self.refusal
        if self.has_no_certificate:
            raise NotAuthorized(NO_CERTIFICATE)
        return self.peer

    def is_idle(self, now: float, seconds: float = 0.0) -> bool:
        if self.protocol is None or self.protocol.processor.streams:
            return False
        last = self.protocol.connection.last_stream_created or self.opened
        return now - last >= seconds

    def why_over(self, now: float, wall: datetime) -> str | None:
        """Why the connection has to be closed; None while it may stay."""
        if self.refusal is not None and now - self.opened > REFUSED_SECONDS_MAX:
            return "refused"
        peer = self.peer if self.tunnel is None else self.tunnel.peer
        if peer is not None and any(wall >= each.not_after for each in peer.chain):
            return "the certificate has expired"
        return "idle" if self.is_idle(now, IDLE_SECONDS_MAX) else None

    def is_lost(self) -> bool:
        """Whether it was open, and is no more."""
        found = self.tunnel or self.protocol
        return found is not None and found.lost.is_set()

    def end(self, reason: str) -> None:
        if self.tunnel is not None:
            self.tunnel.close(reason)
        if self.protocol is not None:
            self.protocol.processor.close(reason)


class GrpcConnectionProtocol(H2Protocol):
    """Authenticates the peer before a byte is read; disconnects one that sends garbage or does not read."""

    def __init__(
        self,
        handler: Handler,
        visit: GrpcConnection,
        verify: Verify | None,
        on_made: Callable[[GrpcConnection], None],
        *,
        takes_tokens: bool = False,
    ) -> None:
        """With `takes_tokens`, a client without a certificate stays, for calls that authenticate it."""
        super().__init__(handler, CONFIGURATION, _H2)
        self.calls = handler
        self._visit = visit
        self._verify = verify
        self._on_made = on_made
        self._takes_tokens = takes_tokens
        self.lost = Event()

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = cast(Transport, transport)
        h2 = self.connection._connection
        h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: CALLS_MAX})
        self.connection.flush()
        self._visit.protocol = self
        if self._verify is not None:
            self._identify(self._verify, transport.get_extra_info("ssl_object"))
        self._on_made(self._visit)

    def _identify(self, verify: Verify, ssl_object: ssl.SSLObject) -> None:
        try:
            self._visit.peer = verify(ssl_object)
        except Refused as error:
            self._visit.refusal = error
            return
        if self._visit.peer is None and self._takes_tokens:
            self._visit.has_no_certificate = True
        elif self._visit.peer is None:
            self._visit.refusal = NotAuthorized("This link needs a certificate, and none was shown.")

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - the connection ends here
            # grpclib expects well-behaved peers; anything else ends only this connection.
            log.warning("malformed message from a peer", address=self._visit.address, error=repr(error))
            self.transport.abort()
            return
        is_flooding = self.connection.streams_failed > BROKEN_CALLS_MAX
        if is_flooding or self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            log.warning("peer disconnected", address=self._visit.address)
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.lost.set()
