"""What a site tells central. Reports travel through the site's outbox, in order, each once."""

from dataclasses import dataclass
from datetime import datetime

from homeport.core.model.deployment import Hold, Pin
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.node import Node
from homeport.core.model.order import Progress
from homeport.vocabulary import Commit, DeploymentId, NodeId


@dataclass(frozen=True, slots=True)
class Progressed:
    """News from inside an order, with the node it came from."""

    node_id: NodeId
    progress: Progress


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A deployment file that the site could not accept; what it asked for before stays as it is."""

    path: str
    message: str
    deployment_id: DeploymentId | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Synced:
    """The site has applied this commit: nothing that it does not list is wanted there any more."""

    commit: Commit
    deployment_ids: tuple[DeploymentId, ...]
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """The source could not be read as a whole (no marker, rewritten history). Everything stays as it is."""

    message: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node joined, changed its capabilities, or became live, stale or lost."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class Pinned:
    """Somebody went back to an older revision at the site; central writes it to Git unless that has moved on."""

    pin: Pin


@dataclass(frozen=True, slots=True)
class HoldsChanged:
    """All that is held at the site from now on; nothing else is."""

    holds: tuple[Hold, ...]


@dataclass(frozen=True, slots=True)
class Restating:
    """The site begins to say anew how everything stands: what it said before was not kept, here or at central.

    What is not among these nodes and instances is gone. It may follow a gap in the sequence; nothing else may.
    """

    why: str
    nodes: tuple[NodeId, ...]
    instances: tuple[tuple[DeploymentId, NodeId], ...]
    reports_lost: int = 0
    since: datetime | None = None
    """How long the oldest of those had waited; None where nothing was lost."""


@dataclass(frozen=True, slots=True)
class Restated:
    """How one instance stands now, whole; its version is each store's own and does not travel."""

    instance: Instance
    steps_lost: int = 0
    """Steps before this one that central will never hear of."""
    since: datetime | None = None
    """When the first of those happened."""

    @property
    def deployment_id(self) -> DeploymentId:
        return self.instance.deployment_id

    @property
    def node_id(self) -> NodeId:
        return self.instance.node_id


Report = (
    Transition
    | Progressed
    | Synced
    | SyncFailed
    | NodeChanged
    | NodeGone
    | Pinned
    | HoldsChanged
    | Restating
    | Restated
)
