"""One connection of the gRPC server: who is at the other end, and what grpclib leaves unbounded.

A visitor whose certificate is not accepted may stay for a moment, so that it hears why in words: a TLS alert has room
for none.
"""

import logging
import ssl
import time
from asyncio import BaseTransport, Event, Transport
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, cast

from grpclib.config import Configuration
from grpclib.protocol import H2Protocol
from grpclib.server import Handler
from h2.config import H2Configuration
from h2.settings import SettingCodes

from homeport.core.model.identity import Peer
from homeport.errors import NotAuthorized, Refused

log = logging.getLogger("homeport.link")

Verify = Callable[[ssl.SSLObject], Peer | None]
"""Who the other end is, by its certificate; None for one that shows none. Raises Refused for one that is not good."""

CALLS_MAX: Final = 16
"""Open calls of one connection. A node needs two at most."""
BROKEN_CALLS_MAX: Final = 200
"""A connection on which this many calls were reset is an attack, or hopeless."""
UNREAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""What may wait for a peer that does not read, answers to its own pings included."""
WINDOW_BYTES: Final = 256 * 1024
"""What a peer may send ahead of our reading it."""
REFUSED_SECONDS_MAX: Final = 2.0
IDLE_SECONDS_MAX: Final = 60.0

# A link that was cut without a word is noticed by ping, not by the next order.
CONFIGURATION: Final = Configuration(
    _keepalive_time=10.0,
    _keepalive_timeout=5.0,
    _keepalive_permit_without_calls=True,
    _http2_max_pings_without_data=0,
    _http2_min_sent_ping_interval_without_data=5.0,
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
class Visit:
    address: str
    opened: float = field(default_factory=time.monotonic)
    peer: Peer | None = None
    refusal: Refused | None = None
    protocol: "VisitProtocol | None" = None
    """None until the handshake is over."""

    def admitted(self) -> Peer | None:
        """The peer, or None on a link that needs none. Raises what the visitor is to be told instead."""
        if self.refusal is not None:
            raise self.refusal
        return self.peer

    def is_idle(self, now: float, seconds: float = 0.0) -> bool:
        if self.protocol is None or self.protocol.processor.streams:
            return False
        last = self.protocol.connection.last_stream_created or self.opened
        return now - last >= seconds

    def why_over(self, now: float, wall: datetime) -> str | None:
        """Why the visit has to end; None while it may go on."""
        if self.refusal is not None and now - self.opened > REFUSED_SECONDS_MAX:
            return "refused"
        if self.peer is not None and any(wall >= each.not_after for each in self.peer.chain):
            return "the certificate has expired"
        return "idle" if self.is_idle(now, IDLE_SECONDS_MAX) else None

    def end(self, reason: str) -> None:
        if self.protocol is not None:
            self.protocol.processor.close(reason)


class VisitProtocol(H2Protocol):
    """Identifies the peer before a byte of it is read; lets go of one that sends nonsense or does not read."""

    def __init__(
        self, handler: Handler, visit: Visit, verify: Verify | None, on_made: Callable[[Visit], None]
    ) -> None:
        super().__init__(handler, CONFIGURATION, _H2)
        self.calls = handler
        self._visit = visit
        self._verify = verify
        self._on_made = on_made
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
        if self._visit.peer is None:
            self._visit.refusal = NotAuthorized("This link needs a certificate, and none was shown.")

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - the connection ends here
            # grpclib expects well-behaved peers; whatever this one sent ends its own connection only.
            log.warning("nonsense from a peer", extra={"address": self._visit.address, "error": repr(error)})
            self.transport.abort()
            return
        is_flooding = self.connection.streams_failed > BROKEN_CALLS_MAX
        if is_flooding or self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            log.warning("peer cut off", extra={"address": self._visit.address})
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.lost.set()
