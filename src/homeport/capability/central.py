"""What a capability brings to central: its routes with their actions, its gRPC services, its loops, its answers to
sites, and its readers of commits of the deployments repository.

Its commands are one more line, in `cli/main.py`, which must not import it to print its help.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from homeport.fleet.central.index import CommitReader
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.site_removal import ForgetSite
from homeport.lazy_dataclass import dataclass
from homeport.serving.capability import Routes
from homeport.vocabulary import SiteName

if TYPE_CHECKING:
    from homeport.adapters.link.grpc_services import Service

FromSite = Callable[[SiteName, bytes], Awaitable[bytes]]
"""Answers one call of a site. A PermanentError reaches the site as its refusal; the site may repeat a call whose
answer was lost."""


class ReplicaChoice(StrEnum):
    """Which replicas of central run a loop."""

    EACH = "each"
    ONE = "one"
    """The holder of the lease with the loop's name; its writes are refused once another process holds it."""


@dataclass(frozen=True, slots=True)
class Loop:
    name: str
    run: Callable[[CentralPlatform], Awaitable[None]]
    """Runs until cancelled. Anything but a transient error ends the role."""
    replicas: ReplicaChoice = ReplicaChoice.EACH


@dataclass(frozen=True, slots=True)
class CentralPart:
    routes: Sequence[Routes] = ()
    services: Sequence["Service"] = ()
    """Served beside the one for nodes; each authorizes its clients itself."""
    before_serving: Sequence[Callable[[], Awaitable[object]]] = ()
    """Awaited before the first request is answered."""
    loops: Sequence[Loop] = ()
    metrics: Sequence[Collector] = ()
    """Shown on `/metrics`."""
    from_sites: Mapping[str, FromSite] = field(default_factory=dict)
    """By topic."""
    forget_site: ForgetSite | None = None


@dataclass(frozen=True, slots=True)
class CentralCapability:
    name: str
    part: Callable[[CentralPlatform], CentralPart]
    """Called once, when central starts."""
    commit_readers: Sequence[CommitReader] = ()
    """Readers of its own files in the deployments repository."""
