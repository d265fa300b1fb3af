"""Sites, nodes and holds."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from homeport.serving.bodies.body import Body


class HoldBody(Body):
    """A site operator's word that nothing is to change for a while."""

    site: str
    deployment_id: str | None
    """None: the whole site."""
    reason: str
    author: str
    at: datetime
    expires_at: datetime


class HoldsBody(Body):
    holds: Sequence[HoldBody]


class SiteBody(Body):
    name: str
    joined_at: datetime
    last_seen: datetime | None
    reachable: bool
    applied_commit: str | None
    problem: str | None
    software_version: str
    nodes: int
    nodes_live: int
    deployments: Mapping[str, int]
    """How many are in each state."""
    holds: Sequence[HoldBody] = []
    labels: Mapping[str, str] = {}


class LabelSite(Body):
    """Sets labels, and removes those that are null; the others stay."""

    labels: dict[Annotated[str, StringConstraints(max_length=128)], str | None] = Field(max_length=64)


class SitesBody(Body):
    sites: Sequence[SiteBody]


class GpuBody(Body):
    model: str
    manufacturer: str
    memory_bytes: int


class CapabilitiesBody(Body):
    cpu_cores: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    os: str
    architecture: str
    engine: str
    engine_version: str
    profile_types: Sequence[str]
    gpus: Sequence[GpuBody]


class NodeBody(Body):
    id: str
    hostname: str
    site: str
    liveness: Literal["live", "stale", "lost"]
    last_seen: datetime
    registered_at: datetime
    drain: str | None = None
    """Why somebody wants it empty; null while it takes work."""
    labels: Mapping[str, str]
    software_version: str
    capabilities: CapabilitiesBody


class NodesBody(Body):
    nodes: Sequence[NodeBody]


class OverviewBody(Body):
    """One call for the state of the whole fleet."""

    version: str
    role: str
    commit: str | None
    sites: Sequence[SiteBody]
    nodes: Sequence[NodeBody]
    deployments: Mapping[str, int]
    last_event_id: int
