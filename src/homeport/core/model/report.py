"""A site's reports to central. They travel through the site's outbox, in order, each once."""

from datetime import datetime

from homeport.core.model.deployment import Hold, Pin
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.node import Node
from homeport.core.model.order import Progress
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Commit, DeploymentId, NodeId, NoticeCode


@dataclass(frozen=True, slots=True)
class Progressed:
    """Progress of an order, with the node it came from."""

    node_id: NodeId
    progress: Progress


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A deployment file that the site rejected; the previous content stays applied."""

    path: str
    message: str
    deployment_id: DeploymentId | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Synced:
    """The site has applied this commit: deployments that it does not list are no longer wanted there."""

    commit: Commit
    deployment_ids: tuple[DeploymentId, ...]
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """The source could not be read as a whole (no marker, rewritten history). Everything stays unchanged."""

    message: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node joined, changed its capabilities, or became live, stale or lost."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeNoticed:
    """Something that a node did or refused without an order, or a problem that its site found with it."""

    node_id: NodeId
    code: NoticeCode
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Pinned:
    """An operator rolled back to an older revision at the site; central writes it to Git unless Git has changed
    since."""

    pin: Pin


@dataclass(frozen=True, slots=True)
class HoldsChanged:
    """The complete list of holds at the site."""

    holds: tuple[Hold, ...]


@dataclass(frozen=True, slots=True)
class Resync:
    """Starts a full resync: earlier reports were lost, here or at central.

    Nodes and instances not in the resync no longer exist. Only this report may follow a gap in the sequence.
    """

    why: str
    nodes: tuple[NodeId, ...]
    instances: tuple[tuple[DeploymentId, NodeId], ...]
    reports_lost: int = 0
    since: datetime | None = None
    """When the oldest lost report was queued; None where nothing was lost."""


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """The complete current state of one instance; its version is local to each store and not sent."""

    instance: Instance
    steps_lost: int = 0
    """The number of earlier steps that central will never receive."""
    since: datetime | None = None
    """When the first of those happened."""
    reason: str = ""
    """Why it is sent, for the history; empty where the lost steps say enough."""
    replaces: bool = False
    """Whether it applies even where central knows a newer order: the site was restored from an older copy, and what
    central knows of the time after that is no longer true."""

    @property
    def deployment_id(self) -> DeploymentId:
        return self.instance.deployment_id

    @property
    def node_id(self) -> NodeId:
        return self.instance.node_id


@dataclass(frozen=True, slots=True)
class PlanSetAside:
    """The site cannot plan a deployment and leaves it unchanged; with `why` None, it can again."""

    deployment_id: DeploymentId
    why: str | None
    at: datetime


Report = (
    Transition
    | Progressed
    | Synced
    | SyncFailed
    | NodeChanged
    | NodeGone
    | NodeNoticed
    | Pinned
    | HoldsChanged
    | Resync
    | InstanceSnapshot
    | PlanSetAside
)
