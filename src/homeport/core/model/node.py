"""A node: one machine of a site, its capabilities, and its last heartbeat."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from homeport.core.model.protocol import UNSAID, PeerProtocol
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Liveness, NodeId, ProfileType, SiteName


@dataclass(frozen=True, slots=True)
class Gpu:
    model: str
    manufacturer: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The machine as its operating system describes it, and what its engine can run."""

    cpu_cores: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    os: str
    """As `uname -s`, lower case: linux."""
    architecture: str
    """Margo's names: amd64, arm64, arm, riscv64, other."""
    engine: str = ""
    """podman, docker, containerd, process or null; empty when no engine was found."""
    engine_version: str = ""
    profile_types: tuple[ProfileType, ...] = ()
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Tunable:
    """Settings that can be changed while a node runs. Unset ones stay as the node was started."""

    heartbeat_seconds: float = 0.0
    """0 for the site's interval."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Added to the node's own labels, and take precedence over them."""
    log_level: str = ""
    telemetry_seconds: float = 0.0
    """The interval of measurements; 0 for the node's own."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node's registration."""

    id: NodeId
    hostname: str
    capabilities: Capabilities
    labels: Mapping[str, str] = field(default_factory=dict)
    software_version: str = ""
    protocol: PeerProtocol = UNSAID
    agent_address: str = ""
    """HOST:PORT of the node's own gRPC service, for agents that have one; Homeport's own has none."""


@dataclass(frozen=True, slots=True)
class Node:
    """A registered node, as its site and central know it."""

    info: NodeInfo
    site: SiteName
    liveness: Liveness
    last_seen: datetime
    registered_at: datetime
    drain: str | None = None
    """Why an operator drains it; None while it takes work."""
    problem: str | None = None
    """A problem found by its site that an operator must fix."""

    tunable: Tunable = field(default_factory=Tunable)
    """Set by an operator, at its site."""

    @property
    def id(self) -> NodeId:
        return self.info.id

    @property
    def labels(self) -> Mapping[str, str]:
        """Its own labels, and those that an operator has set."""
        return {**self.info.labels, **self.tunable.labels} if self.tunable.labels else self.info.labels
