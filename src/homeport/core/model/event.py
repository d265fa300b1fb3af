"""Events, history and the records that lists show."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Final

from homeport.core.model.instance import Failure
from homeport.core.model.protocol import UNSAID, PeerProtocol
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import (
    Actor,
    Commit,
    DeploymentId,
    Digest,
    EventKind,
    Incarnation,
    LogStream,
    NodeId,
    RolloutId,
    SiteName,
    State,
    SubjectKind,
    Trigger,
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about."""

    kind: str
    """A `SubjectKind`, or one of another version."""
    id: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"

    @property
    def stream(self) -> LogStream:
        return _STREAMS.get(self.kind, LogStream.FLEET)


_STREAMS: Final[Mapping[str, LogStream]] = {
    SubjectKind.JOB: LogStream.JOBS,
    SubjectKind.PIPELINE: LogStream.JOBS,
    SubjectKind.TASK: LogStream.TASKS,
}
NOT_SAID: Final = Subject("", "")


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event before the log has given it an id."""

    kind: EventKind
    at: datetime
    message: str
    """One line a person can read."""
    site: SiteName | None = None
    deployment_id: DeploymentId | None = None
    node_id: NodeId | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    subject: Subject = NOT_SAID
    """Derived from the kind, unless given."""

    def __post_init__(self) -> None:
        if self.subject is NOT_SAID:
            object.__setattr__(self, "subject", _subject(self))


def _subject(event: NewEvent) -> Subject:
    """Derived from the noun of the kind."""
    noun = event.kind.value.partition(".")[0]
    match noun:
        case "app" | "rollout":
            return Subject(noun, str(event.data.get(f"{noun}_id", "")))
        case "node":
            return Subject(SubjectKind.NODE, event.node_id or "")
        case "deployment" | "instance" | "drift" | "hold" if event.deployment_id is not None:
            return Subject(SubjectKind.DEPLOYMENT, event.deployment_id)
        case _:
            return Subject(SubjectKind.SITE, event.site or "")


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    """In commit order, without gaps that a reader could miss: after event 7, a reader requests what is after 7."""
    event: NewEvent


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    deployment_id: DeploymentId
    node_id: NodeId
    incarnation: Incarnation
    before: State
    after: State
    trigger: Trigger
    actor: Actor
    reason: str
    at: datetime
    revision: Digest | None
    failure: Failure | None = None
    verdict: str = "stepped"
    """`stepped`; `stale` for a late event that changed nothing; `restated` where earlier steps are unknown."""


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """An entry with its position in the whole history."""

    id: int
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment as a role knows it: the desired state, and the state derived from its instances."""

    id: DeploymentId
    site: SiteName
    name: str
    margo_app_id: str
    app_name: str
    app_category: str
    app_version: str
    profile_id: str
    profile_type: str
    parameters: Mapping[str, Any]
    revision: Digest
    commit: Commit
    rollout_id: RolloutId | None
    wanted: bool
    """Whether its file is in Git."""
    state: State
    version: int
    created_at: datetime
    updated_at: datetime
    created_by: str
    problem: str | None = None
    """Why the file in Git is not applied (it does not parse, for example); None when it is."""
    archived_at: datetime | None = None
    set_aside: str | None = None
    """Why its site cannot plan it and leaves it unchanged although the file is valid. None when it can."""


@dataclass(frozen=True, slots=True)
class Site:
    name: SiteName
    joined_at: datetime
    last_seen: datetime | None
    """None for a site that was named in Git or by an administrator and has not connected yet."""
    applied_commit: Commit | None
    problem: str | None = None
    software_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """From its marker in Git; rollouts select by them."""
    silent_since: datetime | None = None
    """When the site was reported offline; None again once it connects."""
    protocol: PeerProtocol = UNSAID
