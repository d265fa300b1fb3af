"""An instance: a deployment on one node, and what is known of it."""

from dataclasses import dataclass
from datetime import datetime

from homeport.vocabulary import Actor, DeploymentId, Digest, Generation, Happening, Incarnation, NodeId, State


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, with a stable code and the component it belongs to."""

    code: str
    message: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    deployment_id: DeploymentId
    node_id: NodeId
    incarnation: Incarnation
    state: State
    version: int
    """Counts the writes; a write names the version it has seen and fails when another came first."""
    generation: Generation
    """The newest order sent for it; 0 when none was."""
    revision: Digest | None
    """The revision it is at or moving to; None before the first order."""
    running_revision: Digest | None
    """The last revision that was healthy here; None when no release runs."""
    attempt: int
    step: str
    """What is going on, in a few words for a person: `pulling 61 %`, `no node is connected`."""
    failure: Failure | None
    updated_at: datetime
    rejected_revision: Digest | None = None
    """The revision that was rolled back from here: it is not applied again until Git has another one."""
    next_at: datetime | None = None
    """While FAILED: when its site tries again, or goes back. None: a person or a newer revision must help."""

    @property
    def key(self) -> tuple[DeploymentId, NodeId]:
        return self.deployment_id, self.node_id


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one instance, as it is written to history and sent from site to central."""

    deployment_id: DeploymentId
    node_id: NodeId
    incarnation: Incarnation
    happening: Happening
    actor: Actor
    reason: str
    at: datetime
    generation: Generation
    revision: Digest | None
    failure: Failure | None = None
    next_at: datetime | None = None
    """With a failure: when the site acts again by itself."""
