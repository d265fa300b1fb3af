"""A node: one machine of a site, what it can do, and when it was last heard."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from homeport.vocabulary import Liveness, NodeId, ProfileType, SiteName


@dataclass(frozen=True, slots=True)
class Gpu:
    model: str
    manufacturer: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the operating system says of the machine, and what its engine can run."""

    cpu_cores: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    os: str
    """As `uname -s`, lower case: linux."""
    architecture: str
    """Margo's names: amd64, arm64, arm, riscv64, other."""
    engine: str = ""
    """podman, docker, containerd, process or null; empty when the node has found none."""
    engine_version: str = ""
    profile_types: tuple[ProfileType, ...] = ()
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a node says of itself when it registers."""

    id: NodeId
    hostname: str
    capabilities: Capabilities
    labels: Mapping[str, str] = field(default_factory=dict)
    software_version: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A registered node, as its site and central know it."""

    info: NodeInfo
    site: SiteName
    liveness: Liveness
    last_seen: datetime
    registered_at: datetime
    drain: str | None = None
    """Why a person wants it empty; None while it takes work."""

    @property
    def id(self) -> NodeId:
        return self.info.id
