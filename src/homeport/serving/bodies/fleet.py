"""Sites, nodes and holds."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from homeport.serving.bodies.body import Body, PageBody


class HoldBody(Body):
    """A site operator's request to change nothing for a while."""

    site: str
    deployment_id: str | None
    """None: the whole site."""
    reason: str
    author: str
    at: datetime
    expires_at: datetime


class HoldsBody(PageBody):
    holds: Sequence[HoldBody]


class SiteBody(Body):
    name: str
    joined_at: datetime
    last_seen: datetime | None
    reachable: bool
    applied_commit: str | None
    problem: str | None
    software_version: str
    protocol: int
    """Its protocol version; 1 is the first release, which does not send it."""
    features: Sequence[str] = []
    """What it supports beyond the first release."""
    nodes: int
    nodes_live: int
    deployments: Mapping[str, int]
    """The number in each state."""
    holds: Sequence[HoldBody] = []
    labels: Mapping[str, str] = {}


class LabelSite(Body):
    """Sets labels, and removes those that are null; the others stay."""

    labels: dict[Annotated[str, StringConstraints(max_length=128)], str | None] = Field(max_length=64)


class RemovedSiteBody(Body):
    name: str
    identity_removed: bool
    """Whether it had joined with an identity, which is then no longer accepted."""


class SitesBody(PageBody):
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


class NodeSettingsBody(Body):
    """A node's settings that were changed while it runs; 0 and empty for the values it was started with."""

    heartbeat_seconds: float = 0.0
    log_level: str = ""
    telemetry_seconds: float = 0.0
    labels: Mapping[str, str] = Field(default_factory=dict)


class NodeBody(Body):
    id: str
    hostname: str
    site: str
    liveness: Literal["live", "stale", "lost", "unknown"]
    """unknown: its site is unreachable, so its liveness is unknown."""
    liveness_since: datetime | None = None
    """Since when it is not live; null while it is."""
    last_seen: datetime
    registered_at: datetime
    drain: str | None = None
    problem: str | None = None
    """A problem found by its site that an operator must fix."""
    """Why an operator drains it; null while it takes work."""
    labels: Mapping[str, str]
    """Its own labels, and those that were set."""
    settings: NodeSettingsBody = Field(default_factory=NodeSettingsBody)
    software_version: str
    protocol: int
    """Its protocol version; 1 is the first release, which does not send it."""
    features: Sequence[str] = []
    """What it supports beyond the first release."""
    agent_address: str = ""
    """HOST:PORT of its own gRPC service, for agents that have one."""
    capabilities: CapabilitiesBody


class OrchionCapabilitiesBody(CapabilitiesBody):
    """With the texts of Orchion's API; `os` is "linux/amd64" here."""

    cpu: str
    memory: str
    gpu_type: str
    gpu_vram_total: str


class OrchionNodeBody(NodeBody):
    """A node with the fields of Orchion's API beside ours."""

    last_seen_unix: int
    """Seconds since 1970, UTC."""
    capabilities: OrchionCapabilitiesBody


class NodesBody(PageBody):
    nodes: Sequence[NodeBody]


class VolumeBody(Body):
    volume: str = Field(description="As the container engine calls it.")
    owner: str = Field(description="The name of its deployment and of the component, joined by a dash.")
    name: str = Field(description="As the app calls it.")
    used: bool = Field(description="Whether a container has it. False: a deleted deployment left it.")


class VolumesBody(Body):
    volumes: Sequence[VolumeBody]


class SiteCountsBody(Body):
    count: int
    reachable: int


class AttentionBody(Body):
    """Something that an operator should look at."""

    kind: Literal["site", "node", "deployment"]
    name: str
    site: str
    why: str


class OverviewBody(Body):
    """The state of the whole fleet in one call: counts, and the first items that need attention."""

    version: str
    role: str
    commit: str | None
    sites: SiteCountsBody
    nodes: Mapping[str, int]
    """The number that are live, stale, lost and unknown."""
    devices: int = 0
    """The number of devices that Margo clients have reported, gateways included."""
    deployments: Mapping[str, int]
    """The number in each state."""
    jobs: Mapping[str, int]
    """The number that wait (PENDING), were given to a node (ASSIGNED) and run (RUNNING)."""
    attention: Sequence[AttentionBody]
    """What failed, is unhealthy, unreachable, or runs another release than Git wants; some of each kind."""
    attention_counts: Mapping[str, int]
    """The total number of each kind."""
    last_event_id: int
