"""Events, history and the records that lists show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from homeport.core.model.instance import Failure
from homeport.vocabulary import (
    Actor,
    Commit,
    DeploymentId,
    Digest,
    EventKind,
    Happening,
    Incarnation,
    NodeId,
    RolloutId,
    SiteName,
    State,
)


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


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    """In commit order, without gaps a reader could miss: a reader that has seen 7 asks for what is after 7."""
    event: NewEvent


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    deployment_id: DeploymentId
    node_id: NodeId
    incarnation: Incarnation
    before: State
    after: State
    happening: Happening
    actor: Actor
    reason: str
    at: datetime
    revision: Digest | None
    failure: Failure | None = None
    verdict: str = "stepped"
    """`stepped`; `stale` for late news that changed nothing; `restated` where steps before it are not known."""


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """An entry with its place among all of them."""

    id: int
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment as a role knows it: what is wanted, and the fold of what its instances say."""

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
    """Why the file in Git is not what is applied (it does not parse, say); None when all is well."""
    archived_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Site:
    name: SiteName
    joined_at: datetime
    last_seen: datetime | None
    """None for a site that was named in Git or by a person and has not called yet."""
    applied_commit: Commit | None
    problem: str | None = None
    software_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """From its marker in Git; rollouts select by them."""
