"""What a capability brings to a node: handlers for orders of its kinds of work, and loops.

Imports nothing that a node must not load: no web framework, database toolkit or schema library.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from homeport.core.model.instance import Failure
from homeport.core.model.node import Tunable
from homeport.core.model.order import Assignment, Order, Progress, Result
from homeport.core.node.entry import JournalEntry
from homeport.core.node.permissions import NOTHING, Permissions
from homeport.core.tunnel.targets import OfferedEndpoints
from homeport.lazy_dataclass import dataclass
from homeport.ports import Clock, ContentSource, DialTunnel, EngineHandoffs, InThread, LogBuffer, Runtime, Telemetry
from homeport.vocabulary import NodeId


@dataclass(frozen=True, slots=True)
class Done:
    """How an order ended."""

    result: Result
    keeps_good: bool = False
    """After a failure: whether the last good release is untouched, and has to be kept running."""
    clean_up: Callable[[], Awaitable[None]] | None = None
    """Called once the result is durable; what it removes would otherwise be started again after a crash. It raises
    nothing but cancellation, and is not repeated after a crash."""


class Handler(Protocol):
    """Carries out the orders of one kind of work. Its methods raise nothing but cancellation."""

    def accepted(self, order: Order) -> None:
        """It is durable, and will be carried out."""

    async def carry_out(self, entry: JournalEntry) -> Done:
        """Also after a crash, from the beginning: steps already done are detected and skipped."""

    async def give_up(self, entry: JournalEntry, failure: Failure) -> Done:
        """The node was killed repeatedly while it carried it out."""

    async def refused(self, order: Order, failure: Failure, entry: JournalEntry | None) -> Result:
        """The order could not be made durable, and was not begun. `entry` is the previous one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlatform:
    """What a node offers to every capability."""

    node_id: NodeId
    data: Path
    clock: Clock
    runtime: Runtime
    in_thread: InThread
    environment: Mapping[str, str]
    """Of the node's process."""
    unfinished: Callable[[str], Collection[Assignment]]
    """The orders of a kind of work that have not ended."""
    progress: Callable[[Progress], None]
    logs: LogBuffer
    telemetry: Callable[[Telemetry], None]
    replicas: Callable[[EngineHandoffs], None]
    permissions: Permissions = NOTHING
    """What the owner of the machine allows."""
    dial_site: DialTunnel | None = None
    """None in a simulation."""
    tunable: Callable[[], Tunable] = Tunable
    """What an operator has changed since the node was started."""
    telemetry_seconds: float = 0.0
    """The interval of measurements; 0 for none."""
    endpoints: OfferedEndpoints = field(default_factory=OfferedEndpoints)
    """Where the site may connect to through the tunnel; each capability offers its own."""
    content: ContentSource | None = None
    """Components, images and models by digest, from the site. None where it offers none, as in a simulation."""


@dataclass(frozen=True, slots=True)
class NodePart:
    handlers: Mapping[str, Handler] = field(default_factory=dict)
    """By kind of work."""
    one_off: frozenset[str] = frozenset()
    """Kinds of work that are done once: the node forgets a piece of it when the site has its result."""
    loops: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Run until cancelled. An exception ends the role."""


@dataclass(frozen=True, slots=True)
class NodeCapability:
    name: str
    part: Callable[[NodePlatform], NodePart]
    """Called once, when the node starts."""
