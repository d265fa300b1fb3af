"""An instance: a deployment on one node, and its known state."""

from collections.abc import Collection
from datetime import datetime

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Actor, DeploymentId, Digest, Generation, Incarnation, NodeId, State, Trigger


def failure_text(message: str, code: str, component: str = "") -> str:
    """One sentence without its full stop, so that more may follow: `web ended (EXITED, component web)`."""
    where = f", component {component}" if component else ""
    return f"{message.rstrip('. ')} ({code}{where})"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, with a stable code and the component it belongs to."""

    code: str
    message: str
    source: str = ""

    def __str__(self) -> str:
        return failure_text(self.message, self.code)


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """A node's observation of a release that was healthy when it was installed. Not a state of its own: the instance
    stays INSTALLED and shows this."""

    since: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Instance:
    deployment_id: DeploymentId
    node_id: NodeId
    incarnation: Incarnation
    state: State
    version: int
    """Optimistic lock: a write names the version it has read and fails when another write came first."""
    generation: Generation
    """The newest order sent for it; 0 before the first."""
    revision: Digest | None
    """The revision it is at or moving to; None before the first order."""
    running_revision: Digest | None
    """The last revision that was healthy here; None when no release runs."""
    attempt: int
    step: str
    """The current activity, in a few words for a person: `pulling 61 %`, `no node is connected`."""
    failure: Failure | None
    updated_at: datetime
    rejected_revision: Digest | None = None
    """The revision that was rolled back here: not applied again until Git has another one."""
    next_at: datetime | None = None
    """While FAILED: when its site retries or rolls back. None: an operator or a newer revision must help."""
    unhealthy: Unhealthy | None = None
    """None while the release is healthy, as far as its node has reported."""
    rejected_for: Failure | None = None
    """Why `rejected_revision` was rolled back. Going back may fail too, and `failure` is that one then."""

    @property
    def key(self) -> tuple[DeploymentId, NodeId]:
        return self.deployment_id, self.node_id

    def runs(self, revisions: Collection[Digest]) -> bool:
        """Whether one of these revisions runs here, or is being started or stopped."""
        return self.state is not State.DELETED and (self.running_revision in revisions or self.revision in revisions)

    def is_failing(self, wanted: Digest) -> bool:
        """A failure is past where another revision than the failed one is wanted by now, and runs."""
        if self.failure is None:
            return False
        return self.state is not State.INSTALLED or self.rejected_revision in (None, wanted)


@dataclass(frozen=True, slots=True)
class RecordedRollback:
    """A rollback on a node, as recorded by central, for a site that has lost its database."""

    deployment_id: DeploymentId
    node_id: NodeId
    revision: Digest
    """What was rolled back: it is not applied again until Git has another one."""
    good_revision: Digest
    """The revision that was rolled back to."""
    failure: Failure | None = None

    @property
    def key(self) -> tuple[DeploymentId, NodeId]:
        return self.deployment_id, self.node_id


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one instance, as it is written to history and sent from site to central."""

    deployment_id: DeploymentId
    node_id: NodeId
    incarnation: Incarnation
    trigger: Trigger
    actor: Actor
    reason: str
    at: datetime
    generation: Generation
    revision: Digest | None
    failure: Failure | None = None
    next_at: datetime | None = None
    """With a failure: when the site retries or rolls back by itself."""
