"""What a site offers to every capability: storage, time, its nodes and their streams, central."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from homeport.core.inference.settings import InferenceSettings
from homeport.core.logs.settings import LogSettings
from homeport.core.model.demand import Resources
from homeport.core.model.node import Node
from homeport.core.model.order import Order
from homeport.core.secrets import SecretValue
from homeport.core.tunnel.targets import OfferedEndpoints
from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    CentralLink,
    Clock,
    ContentCache,
    DialTunnel,
    Ids,
    InferencePorts,
    InThread,
    LogLine,
    LogsStored,
    Store,
)
from homeport.vocabulary import NodeId, SiteName


async def _no_secrets(names: Collection[str]) -> Mapping[str, SecretValue]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlatform:
    site: SiteName
    clock: Clock
    ids: Ids
    store: Store
    central: CentralLink | None
    """None for a site without central."""
    nodes: Callable[[], Mapping[NodeId, Node]]
    """All nodes known now."""
    send: Callable[[NodeId, Order], None]
    """Hands an order to a node's stream if there is one; never blocks."""
    in_thread: InThread
    inference: InferencePorts = field(default_factory=InferencePorts)
    inference_settings: InferenceSettings = field(default_factory=InferenceSettings)
    endpoints: OfferedEndpoints = field(default_factory=OfferedEndpoints)
    """Where central may connect to through the tunnel; each capability offers its own."""
    node_tunnels: OpenTunnels[NodeId] = field(default_factory=OpenTunnels)
    dial_central: DialTunnel | None = None
    """None without central, and in a simulation."""
    data: Path | None = None
    """The site's folder; None in a simulation, which has no disk."""
    logs: LogSettings = field(default_factory=LogSettings)
    logs_stored: Callable[[NodeId, LogsStored], None] = lambda node_id, message: None
    """Acknowledges log lines to a node, if it is connected; never blocks."""
    put_lines: Callable[[Sequence[LogLine]], None] = lambda lines: None
    """Puts lines of work that the site does by itself into its log; never blocks."""
    reserved: Callable[[], Iterable[tuple[NodeId, Resources]]] = tuple
    """What deployments have reserved of the nodes."""
    room_freed: Callable[[], None] = lambda: None
    """Says that other work has given up what it had reserved: a deployment may be waiting for it."""
    reveal: Callable[[Collection[str]], Awaitable[Mapping[str, SecretValue]]] = _no_secrets
    """The values of the site's secrets with these names; one that it lacks is first asked for at central."""
    job_strategy: str = ""
    """The scheduling strategy for jobs; empty for the default."""
    content: ContentCache | None = None
    """Components, charts, images and models by digest, for its nodes. None where it is off, and in a simulation."""
