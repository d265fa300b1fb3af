"""A site's orders to a node, and the node's results."""

from dataclasses import field
from datetime import datetime
from typing import Final, NamedTuple

from homeport.core.model.deployment import Release
from homeport.core.model.instance import Failure, Unhealthy
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, Digest, Generation, OnUnhealthy, OrderKind, Step

DEPLOYMENT: Final = "deployment"
"""The default kind of work, for messages without a kind."""
WORK_KIND_PATTERN: Final = r"^[a-z][a-z0-9-]{0,31}$"


class WorkKey(NamedTuple):
    """Identifies a piece of work in a node's journal: its kind and id."""

    kind: str
    id: str

    def __str__(self) -> str:
        """As a single text: deployments came first, and have no prefix."""
        return self.id if self.kind == DEPLOYMENT else f"{self.kind}/{self.id}"


class Assignment(NamedTuple):
    """One order for one piece of work. The generation grows with each order for the same work."""

    kind: str
    id: str
    generation: Generation

    @property
    def key(self) -> WorkKey:
        return WorkKey(self.kind, self.id)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A revision that was rolled back, and why: not applied again until Git has another one."""

    revision: Digest
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Repeating an order is harmless; a node refuses an older generation than it has seen."""

    generation: Generation
    deployment_id: DeploymentId
    kind: OrderKind
    release: Release | None
    """The release to apply; None for a removal."""
    remove_images: bool = False
    remove_data_of: str = ""
    """With a removal: the name of the deployment whose data volumes go too. Empty: data stays."""
    reason: str = ""
    limit_seconds: float = 0.0
    """Timeout of the whole order; 0 for no limit beyond those of its parts."""
    traceparent: str = ""
    """The trace it belongs to (W3C Trace Context); empty without tracing."""
    on_unhealthy: OnUnhealthy = OnUnhealthy.RESTART
    """What to do when the release becomes unhealthy after it was installed."""
    rejection: Rejection | None = None
    """What it rolls back from. The node only stores it, for a site that loses its database."""
    work: str = DEPLOYMENT
    """The kind of work. For kinds other than deployments, `deployment_id` is the id of that work."""
    content: bytes = field(default=b"", repr=False)
    """The payload of an order of another kind; only the handler of that kind reads it."""

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.work, self.deployment_id, self.generation)

    @property
    def key(self) -> WorkKey:
        return WorkKey(self.work, self.deployment_id)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an order: a lost one does no harm, the result follows. Or a report of drift, without an order."""

    deployment_id: DeploymentId
    generation: Generation
    step: Step
    component: str
    message: str
    """For a person: `pulling hello:1.0.0`, `GET /healthz answered 500`."""
    at: datetime
    bytes_done: int = 0
    bytes_total: int = 0
    healthy: bool | None = None
    """The health of an installed release: unhealthy, or healthy again, with the reason in `message`.
    None for progress that is not about health."""
    work: str = DEPLOYMENT

    @property
    def key(self) -> WorkKey:
        return WorkKey(self.work, self.deployment_id)


@dataclass(frozen=True, slots=True)
class Result:
    """How an order ended. The node keeps it until its site has made it durable."""

    deployment_id: DeploymentId
    generation: Generation
    kind: OrderKind
    succeeded: bool
    at: datetime
    failure: Failure | None = None
    deleted: bool = False
    """With `exit_code` 0, confirms that a removal is complete."""
    exit_code: int = 0
    release_runs: bool = False
    """After a failed update: whether the previous release still runs."""
    work: str = DEPLOYMENT
    content: bytes = field(default=b"", repr=False)
    """The payload of a result of another kind."""

    @property
    def key(self) -> WorkKey:
        return WorkKey(self.work, self.deployment_id)


@dataclass(frozen=True, slots=True)
class Held:
    """One entry of a node's journal, reported to its site on connecting."""

    deployment_id: DeploymentId
    generation: Generation
    kind: OrderKind
    revision: Digest | None
    done: bool
    """Whether the order has ended (its result may still be in the outbox). False for a failed removal: what it was
    to remove still exists."""
    failed: bool = False
    """Whether the order has ended without success; of a node of the first release that is not known."""
    unhealthy: Unhealthy | None = None
    """What is wrong with the installed release; None while it is healthy."""
    good_revision: Digest | None = None
    """The last revision that was healthy there."""
    rejection: Rejection | None = None
    """What the order rolled back from."""
    work: str = DEPLOYMENT
