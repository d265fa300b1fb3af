"""The link between a node and its site."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from datetime import datetime
from typing import Protocol

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.inference.engines.handoff import Handoff
from homeport.core.logs.line import LogLine
from homeport.core.model.identity import Peer
from homeport.core.model.node import Capabilities, Node, NodeInfo, Tunable
from homeport.core.model.order import Assignment, Held, Order, Progress, Result
from homeport.core.model.protocol import UNSAID, PeerProtocol
from homeport.core.node.lanes import Lane
from homeport.lazy_dataclass import dataclass
from homeport.ports.runtime import Owned
from homeport.vocabulary import NodeId, NoticeCode, SiteName


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that cannot be processed: a value out of range, or something only a newer version knows. It takes the
    place of the message, so that the reader of the stream can reply to it and continue."""

    what: str
    why: str
    assignment: Assignment | None = None
    """For an order of which at least the assignment can be read."""
    is_unknown: bool = False
    """Whether it is of a kind that only a newer version knows."""


NodeNews = Progress | Result | Unreadable


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a node on a new stream."""

    info: NodeInfo
    held: tuple[Held, ...]
    boot_id: str = ""
    """Identifies this start of the node's process; empty from an older node."""


@dataclass(frozen=True, slots=True)
class Beat:
    pass


@dataclass(frozen=True, slots=True)
class News:
    """`sequence` is 0 for messages that need no acknowledgement (Progress)."""

    sequence: int
    news: NodeNews


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a node did or refused without an order. Sent once, and not stored."""

    code: NoticeCode
    message: str


@dataclass(frozen=True, slots=True)
class FoundWorkloads:
    """Workloads on a node's engine that are not in its journal: of another node, or from before its journal was
    lost."""

    items: tuple[Owned, ...]


@dataclass(frozen=True, slots=True)
class Orphans:
    """The found workloads that belong to no node any more: the node removes them."""

    items: tuple[Owned, ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    site: SiteName
    heartbeat_seconds: float
    protocol: PeerProtocol = UNSAID
    """The site's protocol; messages it has no feature for are not sent."""
    tunable: Tunable = field(default_factory=Tunable)
    content_port: int = 0
    """Where the site serves content, on the host that the node dialled; 0 for nowhere."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """News up to this sequence is durable at the site; the node may delete it."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Farewell:
    """The node was unregistered by an operator: it stops connecting until it is restarted."""

    reason: str


@dataclass(frozen=True, slots=True)
class MessageRefusal:
    """The site could not read a message of this node; sent only to a node that supports it."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Logs:
    """Log lines of a node."""

    lines: tuple[LogLine, ...]
    dropped: int = 0
    """How many messages of this lane were dropped before this one."""
    buffer: str = ""
    """The node's buffer that they are sent from, until the site has stored them."""
    previous: int = 0
    """The number of the line before the first of these."""


class LogBuffer(Protocol):
    """What keeps a node's lines until its site has stored them."""

    def put_logs(self, logs: Logs, positions: Mapping[str, str] | None = None) -> None:
        """Never blocks. `positions` say how far some outputs were read with these lines, and become durable with
        them."""
        ...

    async def position(self, of: str) -> str:
        """Where an output continues; empty where nothing of it was put here. Raises TransientError."""
        ...

    async def forget_positions(self, of: Sequence[str]) -> None:
        """Of outputs that have ended. Raises TransientError."""
        ...


@dataclass(frozen=True, slots=True)
class LogsStored:
    """The lines of a node's buffer up to this number are durable at the site; what it lacks begins after it."""

    buffer: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Measurements of a node at one moment. Sent once, like logs."""

    at: datetime
    samples: tuple[Sample, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class EngineHandoffs:
    """The inference engines that a node has handed over: all of them, each time."""

    handoffs: tuple[Handoff, ...]
    network: str = ""
    """Identifies the machine and network namespace that loopback addresses belong to."""
    unreadable: tuple[str, ...] = ()
    """Why further ones are left out."""


FromNode = Hello | Beat | News | Notice | FoundWorkloads | Logs | Telemetry | EngineHandoffs | Unreadable
ToNode = Welcome | Order | Acknowledged | Farewell | Orphans | MessageRefusal | Tunable | LogsStored | Unreadable


def lane_of(message: FromNode | ToNode) -> Lane:
    match message:
        case News() | Notice() | FoundWorkloads() | EngineHandoffs() | Order() | Acknowledged() | Orphans():
            return Lane.ORDERS
        case Logs() | LogsStored():
            return Lane.LOGS
        case Telemetry():
            return Lane.TELEMETRY
        case _:
            return Lane.CONTROL


class Stream(Protocol):
    """The node's end of one Connect stream."""

    async def send(self, message: FromNode) -> None: ...
    def __aiter__(self) -> AsyncIterator[ToNode]: ...


class SiteLink(Protocol):
    """How a node reaches its site. `connect` raises PeerUnavailable; a stream that ends, ends its iteration."""

    def connect(self) -> AbstractAsyncContextManager[Stream]: ...

    async def unregister(self, node_id: NodeId) -> None:
        """Unregisters the node at its site."""
        ...


class NodeSession(Protocol):
    """The site's end of one Connect stream."""

    async def send(self, message: ToNode) -> None:
        """Raises PeerUnavailable when the node has disconnected."""
        ...

    def __aiter__(self) -> AsyncIterator[FromNode]: ...


class NodeReception(Protocol):
    """The site's side of `homeport.v1.Nodes`, for every link.

    `peer` is the machine that the link has authenticated; None for a caller in this process, or on this machine where
    the link is open to local clients. A peer may act only for itself: any other node raises NotAuthorized.
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
    async def node(self, node_id: NodeId, peer: Peer | None = None) -> Node | None: ...
    async def measured(self, node_id: NodeId, found: Telemetry, peer: Peer | None = None) -> None:
        """Of a node that has no stream. Raises NotFound for one that must register first."""
        ...

    def gpus(self) -> Mapping[NodeId, GpusOfNode]:
        """Of every node that has any, as measured lately."""
        ...

    async def converse(self, session: NodeSession, peer: Peer | None = None) -> None:
        """Serves a connected node until its stream ends. Its identity and acceptance are checked again at every
        message."""
        ...
