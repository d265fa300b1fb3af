"""What a capability brings to a site: handlers for its kinds of work, its routes with their actions, its gRPC
services, receivers of logs and telemetry, answers to central, and loops."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from prometheus_client.registry import Collector

from homeport.core.model.demand import Resources
from homeport.fleet.site.platform import SitePlatform
from homeport.fleet.site.work import SiteWork
from homeport.lazy_dataclass import dataclass
from homeport.ports import EngineHandoffs, LogLine, Logs, Telemetry
from homeport.serving.capability import Routes
from homeport.vocabulary import NodeId

if TYPE_CHECKING:
    from homeport.adapters.link.grpc_services import Service

Asked = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers one question of central within seconds. A PermanentError reaches central as the site's refusal."""
OnStream = Callable[[NodeId, Logs | Telemetry], None]
"""Never blocks: it is a bounded queue."""
OnReplicas = Callable[[NodeId, EngineHandoffs], None]
"""Takes the inference engines of a node, all of them each time. Never blocks."""

PutLines = Callable[[Sequence[LogLine]], None]
"""Takes log lines of work that the site does by itself. Never blocks."""


@dataclass(frozen=True, slots=True)
class SitePart:
    works: Mapping[str, SiteWork] = field(default_factory=dict)
    """By kind of work."""
    routes: Sequence[Routes] = ()
    services: Sequence["Service"] = ()
    """Served in addition to the one for nodes, to the same authenticated clients."""
    open_services: Sequence["Service"] = ()
    """Served to programs without credentials, where an operator has opened a port for them."""
    on_stream: OnStream | None = None
    on_replicas: OnReplicas | None = None
    put_lines: PutLines | None = None
    asked: Mapping[str, Asked] = field(default_factory=dict)
    """By topic."""
    reserved: Callable[[], Iterable[tuple[NodeId, Resources]]] | None = None
    """What its work takes of the nodes: deployments are placed around it."""
    on_central: Callable[[], None] | None = None
    """Called when central can be reached again: what it has asked before may have been lost."""
    metrics: Sequence[Collector] = ()
    """Shown on `/metrics`, where the site serves it."""
    before_serving: Sequence[Callable[[], Awaitable[object]]] = ()
    """Awaited before the first request is answered."""
    loops: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Run until cancelled. An exception ends the role."""


@dataclass(frozen=True, slots=True)
class SiteCapability:
    name: str
    part: Callable[[SitePlatform], SitePart]
    """Called once, when the site starts."""
