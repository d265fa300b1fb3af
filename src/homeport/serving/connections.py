"""One connection of the web server: what uvicorn's own protocol lacks where strangers can connect.

A head that comes too slowly or grows too large ends the connection, and so does a body that trickles. A machine's
certificate is verified after the handshake and again while the connection lives, because certificates end and
lists of the accepted change; who it is reaches the application as part of the scope, never as a header.
"""

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from homeport.core.addresses import is_loopback
from homeport.core.model.identity import Peer
from homeport.errors import HomeportError
from homeport.serving.limits import Limits

PEER: Final = "homeport.peer"
"""Under `scope["extensions"]`: the verified machine at the other end, or None."""
VERIFY_AGAIN_SECONDS: Final = 1.0

log = structlog.get_logger("homeport.serving")

Verify = Callable[[ssl.SSLObject], Peer | None]
"""Who is at the other end; None without a certificate. Raises Refused for one that is not to be believed."""
OnRefused = Callable[[str, str, str], None]
"""Hears of what is refused before any request: address, code, reason."""


@dataclass(slots=True)
class Counts:
    """The open connections of one server."""

    total: int = 0
    by_address: Counter[str] = field(default_factory=Counter)


class Connection(HttpToolsProtocol):
    """`limits`, `verify` and `counts` are set by `connection_class`, for uvicorn makes the instances."""

    limits: Limits
    verify: Verify | None
    counts: Counts
    on_refused: OnRefused | None

    _peer: Peer | None = None
    _verified_at = 0.0
    _is_admitted = False
    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None
    _age_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._admit():
            transport.abort()
            return
        if not self._believe():
            transport.abort()
            return
        self._head_timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)
        if self._peer is not None:
            self._age_timer = self.loop.call_later(self.limits.connection_seconds, self._retire)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._body_timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        if self._is_admitted:
            self.counts.total -= 1
            address = self._address()
            self.counts.by_address[address] -= 1
            if self.counts.by_address[address] <= 0:
                del self.counts.by_address[address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes_max:
                self._refuse(431, "The head of the request is too large.", "head-too-large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.limits.head_bytes_max:
            self._refuse(431, "The head of the request is too large.", "head-too-large")
            return
        if not self._believe():
            self._refuse(403, "The certificate of this connection is no longer believed.", "not-authorized")
            return
        scope: Any = self.scope
        scope["extensions"] = {PEER: self._peer}
        self._body_timer = self.loop.call_later(self.limits.body_seconds, self._too_slow)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        if not self.transport.is_closing():
            super().on_message_complete()

    def _admit(self) -> bool:
        """Whether there is room for one more."""
        address = self._address()
        if self.counts.total >= self.limits.connections_max:
            log.warning("connection refused, there are too many", open=self.counts.total)
            return False
        mine = self.counts.by_address[address]
        if mine >= self.limits.connections_per_address_max and not is_loopback(address):
            log.warning("connection refused, too many from one address", address=address, open=mine)
            return False
        self._is_admitted = True
        self.counts.total += 1
        self.counts.by_address[address] += 1
        return True

    def _believe(self) -> bool:
        """Whether the other end is nobody in particular, or a machine that is to be believed right now."""
        found = self.transport.get_extra_info("ssl_object")
        if self.verify is None or found is None:
            return True
        now = self.loop.time()
        if self._verified_at and now - self._verified_at < VERIFY_AGAIN_SECONDS:
            return True
        try:
            self._peer = self.verify(found)
        except HomeportError as error:
            log.warning("certificate refused", address=self._address(), why=str(error))
            if self.on_refused is not None:
                self.on_refused(self._address(), "not-authorized", str(error))
            return False
        self._verified_at = now
        return True

    def _too_slow(self) -> None:
        """Nobody is told: whoever trickles bytes in does not wait for an answer."""
        log.debug("connection closed, the request came too slowly", address=self._address())
        self.transport.abort()

    def _retire(self) -> None:
        """Whoever is at the other end dials again and shows its certificate; streams resume where they were."""
        self.transport.close()

    def _refuse(self, status: int, detail: str, code: str) -> None:
        """Answers below the application, and closes."""
        if self.on_refused is not None and code != "not-authorized":
            self.on_refused(self._address(), code, detail)
        title = HTTPStatus(status).phrase
        body = json.dumps(
            {
                "type": f"urn:homeport:problem:{code}",
                "title": title,
                "status": status,
                "detail": detail,
                "code": code,
                "retryable": False,
                "errors": [],
            }
        ).encode()
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _address(self) -> str:
        return str(self.client[0]) if self.client else ""


def connection_class(limits: Limits, verify: Verify | None, on_refused: OnRefused | None = None) -> type[Connection]:
    """The protocol class for one server."""
    return type(
        "Connection",
        (Connection,),
        {
            "limits": limits,
            "verify": staticmethod(verify) if verify else None,
            "counts": Counts(),
            "on_refused": staticmethod(on_refused) if on_refused else None,
        },
    )
