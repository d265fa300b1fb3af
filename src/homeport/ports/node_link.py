"""Between a node and its site."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from homeport.core.model.identity import Peer
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.vocabulary import NodeId, SiteName

NodeNews = Progress | Result


@dataclass(frozen=True, slots=True)
class Hello:
    """The first word of a node on a new stream."""

    info: NodeInfo
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    pass


@dataclass(frozen=True, slots=True)
class News:
    """`sequence` is 0 for news that need not be acknowledged (Progress)."""

    sequence: int
    news: NodeNews


@dataclass(frozen=True, slots=True)
class Welcome:
    site: SiteName
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """News up to this sequence is durable at the site; the node may forget it."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Farewell:
    """The node was unregistered by a person: it stops connecting until it is restarted."""

    reason: str


FromNode = Hello | Beat | News
ToNode = Welcome | Order | Acknowledged | Farewell


class Stream(Protocol):
    """The node's end of one Connect stream."""

    async def send(self, message: FromNode) -> None: ...
    def __aiter__(self) -> AsyncIterator[ToNode]: ...


class SiteLink(Protocol):
    """How a node reaches its site. `connect` raises PeerUnavailable; a stream that ends, ends its iteration."""

    def connect(self) -> AbstractAsyncContextManager[Stream]: ...

    async def unregister(self, node_id: NodeId) -> None:
        """Says good-bye: the site forgets the node at once."""
        ...


class NodeSession(Protocol):
    """The site's end of one Connect stream."""

    async def send(self, message: ToNode) -> None:
        """Raises PeerUnavailable when the node is gone."""
        ...

    def __aiter__(self) -> AsyncIterator[FromNode]: ...


class NodeReception(Protocol):
    """The site's side of `homeport.v1.Nodes`, behind whichever link nodes come through.

    `peer` is the machine that the link has authenticated; None for somebody in this process, or on this machine where
    the link is open to it. A peer is believed for itself alone: every call raises NotAuthorized for another's node.
    """

    heartbeat_seconds: float
    site: SiteName

    async def register(self, info: NodeInfo, peer: Peer | None = None) -> None: ...
    async def beat(self, node_id: NodeId, peer: Peer | None = None) -> None:
        """Raises NotFound for a node that must register first."""
        ...

    async def update(self, node_id: NodeId, capabilities: Capabilities, peer: Peer | None = None) -> None: ...
    async def unregister(self, node_id: NodeId, peer: Peer | None = None) -> None: ...
    async def list_nodes(self, peer: Peer | None = None) -> Sequence[Node]: ...
    async def converse(self, session: NodeSession, peer: Peer | None = None) -> None:
        """Talks with a connected node until its stream ends. Who it is and whether it is accepted is asked again at
        every message."""
        ...
