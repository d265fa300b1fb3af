"""What a site tells a node to do, and what the node answers."""

from dataclasses import dataclass
from datetime import datetime

from homeport.core.model.deployment import Release
from homeport.core.model.instance import Failure
from homeport.vocabulary import DeploymentId, Digest, Generation, OrderKind, Step


@dataclass(frozen=True, slots=True)
class Order:
    """Repeating an order is harmless; an older generation than the node has seen is refused."""

    generation: Generation
    deployment_id: DeploymentId
    kind: OrderKind
    release: Release | None
    """The release to apply; None for a removal."""
    remove_images: bool = False
    reason: str = ""
    limit_seconds: float = 0.0
    """How long carrying it out may take in all; 0 for as long as its parts may."""
    traceparent: str = ""
    """The trace it belongs to (W3C Trace Context); empty where nobody traces."""


@dataclass(frozen=True, slots=True)
class Progress:
    """News from inside an order: losing one loses nothing, the result follows. Or of drift, which nobody ordered."""

    deployment_id: DeploymentId
    generation: Generation
    step: Step
    component: str
    message: str
    """For a person: `pulling hello:1.0.0`, `GET /healthz answered 500`."""
    at: datetime
    bytes_done: int = 0
    bytes_total: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """How an order ended. Kept by the node until its site has made it durable."""

    deployment_id: DeploymentId
    generation: Generation
    kind: OrderKind
    succeeded: bool
    at: datetime
    failure: Failure | None = None
    deleted: bool = False
    """With `exit_code` 0, the confirmation that a removal is complete."""
    exit_code: int = 0
    release_runs: bool = False
    """After a failed update: whether the previous release still runs."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a node already has in its journal, told to its site on connecting."""

    deployment_id: DeploymentId
    generation: Generation
    kind: OrderKind
    revision: Digest | None
    done: bool
    """Whether the order has ended (its result may still be in the outbox). A removal that failed has not: what it was
    to remove is still there."""
