"""The tunnel: streams of bytes to a site, and from a site to its nodes, over connections that they opened.

Central cannot reach a site behind a NAT, so the site keeps one connection open, and streams are opened on it.

    async with tunnel.open(site, Endpoint.of("http://10.0.0.5:8000")) as stream:
        await stream.write(request)
        while data := await stream.read():
            ...
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from homeport.core.tunnel.counts import TunnelCounts
from homeport.core.tunnel.targets import Target
from homeport.vocabulary import SiteName

TunnelHeader = Mapping[str, Any]
"""JSON data."""


class TunnelStream(Protocol):
    """One task may read while another writes. All raise PeerUnavailable when the connection breaks, and the other
    end's error when it resets the stream."""

    accepted: TunnelHeader
    """What the other end said when it accepted the stream."""

    async def read(self, size_max: int = 65536) -> bytes:
        """At least one byte; b"" once the other end has sent its last."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits while the reader at the other end is behind."""
        ...

    async def end(self) -> None:
        """Nothing more will be written; the other end may still write."""
        ...


class IncomingStream(TunnelStream, Protocol):
    """A stream that the other end asks for. The side that answers calls `accept`, or raises a HomeportError, which
    reaches the other end as the refusal."""

    header: TunnelHeader

    async def accept(self, said: TunnelHeader) -> None: ...


AnswerStream = Callable[[IncomingStream], Awaitable[None]]
"""Serves one stream until it is over; the stream is closed when it returns."""


class TunnelConnection(Protocol):
    """One connection, which either opens streams (`open`) or answers them (`serve`)."""

    counts: TunnelCounts

    @property
    def streams(self) -> int:
        """How many are open."""
        ...

    def open(self, header: TunnelHeader) -> AbstractAsyncContextManager[TunnelStream]:
        """Raises the other end's refusal, PeerUnavailable when the connection breaks or is closing."""
        ...

    async def serve(self, answer: AnswerStream) -> None:
        """Answers streams side by side. Returns when the connection is over."""
        ...

    async def closed(self) -> str:
        """Waits for the end of the connection; returns why, in a few words."""
        ...

    def leave(self, reason: str) -> None:
        """Lets open streams finish, and admits no others."""
        ...

    def close(self, reason: str) -> None:
        """Ends all streams at once."""
        ...


DialTunnel = Callable[[], AbstractAsyncContextManager[TunnelConnection]]
"""Opens a tunnel upwards. Raises PeerUnavailable; PeerIncompatible where the other end knows no tunnels."""


class Tunnel(Protocol):
    """Central's access to what its sites can reach."""

    def open(self, site: SiteName, target: Target) -> AbstractAsyncContextManager[TunnelStream]:
        """Raises PeerUnavailable for a site without a tunnel here, and the site's refusal."""
        ...
