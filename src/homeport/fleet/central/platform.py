"""What central offers to its use-cases and to every capability: storage, Git, sites, other replicas, time."""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Self

from anyio.to_thread import run_sync

from homeport.core.inference.settings import InferenceSettings
from homeport.core.logs.settings import LogSettings
from homeport.core.model.lease import Lease
from homeport.core.pipelines.settings import PipelineSettings
from homeport.fleet.central.deploy import GitWriter
from homeport.fleet.central.index import Index
from homeport.fleet.central.secrets import Secrets
from homeport.fleet.central.sightings import Sightings
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.central.sites.tunnels import SiteTunnels
from homeport.fleet.shared.leases import FencedStore
from homeport.fleet.shared.overview import Reachability
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    BuiltInRegistry,
    Bus,
    Clock,
    GitSource,
    Ids,
    InferencePorts,
    InThread,
    Leases,
    Store,
    Tracer,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralPlatform:
    clock: Clock
    ids: Ids
    store: Store
    git: GitSource
    index: Index
    bus: Bus
    leases: Leases
    lease_seconds: float = 10.0
    calls: SiteMessages
    questions: SiteQueries
    tunnels: SiteTunnels
    """Streams to what sites can reach."""
    tracer: Tracer | None
    reachability: Reachability = field(default_factory=Reachability)
    sweep_seconds: float = 5.0
    """The interval of checks that no event triggers: offline sites, expired times."""
    sightings: Sightings = field(default_factory=Sightings)
    in_thread: InThread = run_sync
    inference: InferencePorts = field(default_factory=InferencePorts)
    inference_settings: InferenceSettings = field(default_factory=InferenceSettings)
    registry: BuiltInRegistry | None = None
    """None in a simulation, which has no disk."""
    database_url: str = ""
    """PostgreSQL, where central's replicas share it; else empty."""
    logs: LogSettings = field(default_factory=LogSettings)
    pipelines: PipelineSettings = field(default_factory=PipelineSettings)
    secrets: Secrets | None = None

    data: Path | None = None
    """Where a capability may keep files, below a name of its own; None in a simulation, which has no disk."""
    access_folder: Path | None = None
    """Where the keys of this machine's own servers are, its registry for instance."""
    model_keys: tuple[Path, ...] = ()
    """Public keys; with any, models need a signature by one of them."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the process, for libraries and other tools that are configured by it."""

    def fenced(self, lease: Lease) -> Self:
        """The same, with a store that accepts writes only while the lease is held."""
        return replace(self, store=FencedStore(self.store, self.leases, lease))

    @property
    def git_writer(self) -> GitWriter:
        return GitWriter(self.store, self.git, self.index, self.calls, self.ids, self.in_thread)
