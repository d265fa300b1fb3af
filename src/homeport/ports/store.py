"""Central's and a site's database."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from homeport.core.audit import Ends
from homeport.core.model.access import ApiToken, AuditEntry, NewAudit, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, NewEvent, Site
from homeport.core.model.identity import IdentityRecord, JoinToken, Standing
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.vocabulary import (
    AppId,
    Commit,
    DeploymentId,
    Digest,
    NodeId,
    ProfileType,
    RolloutId,
    RolloutState,
    SiteName,
    State,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AppRecord:
    """An app version in the catalog. `descriptor` is the parsed margo.yaml as plain data, `source` its bytes."""

    id: AppId
    category: str
    app_name: str
    """The folder name in the registry; people deploy by it."""
    version: str
    margo_id: str
    name: str
    vendor: str
    description: str
    tags: tuple[str, ...]
    descriptor: Mapping[str, Any]
    source: bytes
    repository: str
    commit: Commit | None
    added_at: datetime
    added_by: str


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    app_id: AppId
    position: int
    profile_id: str
    type: ProfileType
    description: str
    device_constraints: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ComponentRecord:
    app_id: AppId
    profile_id: str
    position: int
    name: str
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DesiredFile:
    """A deployment file that a site has accepted, byte for byte; a node's orders are derived from it."""

    deployment_id: DeploymentId
    path: str
    revision: Digest
    content: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A report that waits in a site's outbox. Numbers are never used twice; only what is dropped leaves a gap."""

    sequence: int
    body: Mapping[str, Any]
    size_bytes: int = field(default=0, compare=False)
    """As it is stored; 0 where nobody has looked."""


@dataclass(frozen=True, slots=True)
class DeploymentFilter:
    site: SiteName | None = None
    name: str | None = None
    state: State | None = None
    rollout_id: str | None = None
    archived: bool = False


class Reader(Protocol):
    """Queries, each named for what it answers."""

    async def apps(
        self, *, category: str | None = None, app_name: str | None = None, version: str | None = None
    ) -> Sequence[AppRecord]: ...
    async def app(self, app_id: AppId) -> AppRecord | None: ...
    async def profiles(self, app_id: AppId) -> Sequence[ProfileRecord]: ...
    async def components(self, app_id: AppId) -> Sequence[ComponentRecord]: ...

    async def sites(self) -> Sequence[Site]: ...
    async def site(self, name: SiteName) -> Site | None: ...
    async def nodes(self, site: SiteName | None = None) -> Sequence[Node]: ...
    async def nodes_called(self, node_id: NodeId) -> Sequence[Node]:
        """A node's id is its own within its site, so a fleet may have several of one name."""
        ...

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        """What people want left as it is, those that have expired included until somebody has noticed."""
        ...

    async def deployments(self, where: DeploymentFilter) -> Sequence[Deployment]: ...
    async def deployment(self, deployment_id: DeploymentId) -> Deployment | None: ...
    async def deployments_by_ids(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]: ...
    async def deployments_by_prefix(self, prefix: str) -> Sequence[Deployment]: ...
    async def instances(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Instance]:
        """Newest incarnation of each; all of them when `deployment_ids` is None."""
        ...

    async def rollouts(
        self, states: Collection[RolloutState] | None = None, *, name: str | None = None
    ) -> Sequence[RolloutRow]:
        """Newest first; those in one of `states`, and of one name, or all."""
        ...

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None: ...

    async def history(self, deployment_id: DeploymentId) -> Sequence[HistoryEntry]: ...
    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        """Of all deployments or of one, in the order in which it was written."""
        ...

    async def events(
        self, *, after: int, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[Event]: ...
    async def last_event_id(self) -> int: ...

    async def tokens(self) -> Sequence[ApiToken]: ...
    async def token(self, token_id: str) -> ApiToken | None: ...
    async def identities(self, standing: Standing | None = None) -> Sequence[IdentityRecord]: ...
    async def identity(self, spiffe_id: str) -> IdentityRecord | None: ...
    async def join_tokens(self) -> Sequence[JoinToken]: ...
    async def join_token(self, token_id: str) -> JoinToken | None: ...
    async def audit(
        self,
        *,
        after: int,
        limit: int,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        newest: bool = False,
    ) -> Sequence[AuditEntry]:
        """Oldest first. `action` may be the noun alone. `newest` answers the last `limit` instead of the first."""
        ...

    async def last_audit(self) -> AuditEntry | None: ...
    async def audit_ends(self) -> Ends:
        """Where the trail has to begin and to end, as noted when it was last written and trimmed."""
        ...

    async def secrets(self, site: SiteName | None = None) -> Sequence[SecretRecord]: ...
    async def secret(self, site: SiteName, name: str) -> SecretRecord | None: ...

    async def revisions(self, deployment_id: DeploymentId) -> Sequence[Revision]:
        """The contents that a deployment had, as far as they are kept, newest first."""
        ...

    async def pins(self) -> Sequence[Pin]: ...

    async def desired_files(self) -> Sequence[DesiredFile]: ...
    async def outbox(self, *, limit: int, after: int = 0) -> Sequence[Outgoing]: ...
    async def outbox_size(self) -> int: ...
    async def outbox_bytes(self) -> int:
        """What the waiting reports take, without what the database adds."""
        ...

    async def outbox_left(self) -> int:
        """The number of the last report that is no longer there; 0 before the first has left."""
        ...

    async def value(self, key: str) -> str | None:
        """One of the role's own few values: indexed commit, counters, site id."""
        ...


class Transaction(Reader, Protocol):
    """Reads and writes that become durable together, or not at all."""

    async def add_app(
        self, app: AppRecord, profiles: Sequence[ProfileRecord], components: Sequence[ComponentRecord]
    ) -> None:
        """Raises Conflict when category, app name and version are taken."""
        ...

    async def remove_app(self, app_id: AppId) -> None: ...

    async def put_site(self, site: Site) -> None: ...
    async def put_node(self, node: Node) -> None: ...
    async def touch_nodes(self, site: SiteName, seen: Mapping[NodeId, datetime]) -> None: ...
    async def remove_node(self, site: SiteName, node_id: NodeId) -> None: ...
    async def put_holds(self, site: SiteName, holds: Sequence[Hold]) -> None:
        """These are all that the site has."""
        ...

    async def put_deployments(self, deployments: Sequence[Deployment]) -> None:
        """Inserts (version 1) or updates by id, guarded like `put_instances`."""
        ...

    async def put_instances(self, instances: Sequence[Instance]) -> None:
        """Inserts (version 1) or updates, guarded: each update expects the stored version to be one less.

        Raises `homeport.errors.Conflict` when somebody else moved on; the transaction then changes nothing.
        """
        ...

    async def set_steps(self, steps: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
        """Says what is going on at each instance. Commentary, not state: not guarded, and unknown keys are passed
        over."""
        ...

    async def drop_instances(self, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None: ...

    async def put_rollouts(self, rollouts: Sequence[RolloutRow]) -> None:
        """Inserts (version 1) or updates by id, guarded like `put_instances`."""
        ...

    async def append_history(self, entries: Sequence[HistoryEntry]) -> None: ...
    async def append_events(self, events: Sequence[NewEvent]) -> None: ...
    async def trim_events(self, keep: int) -> None:
        """Forgets all but the newest `keep` events, at least one; history stays."""
        ...

    async def put_token(self, token: ApiToken) -> None: ...
    async def put_identity(self, record: IdentityRecord) -> None: ...
    async def put_join_token(self, token: JoinToken) -> None: ...
    async def use_join_token(self, token_id: str, *, by: str, at: datetime) -> bool:
        """Marks it used; False when it was used already. Guarded, so that of two who try only one joins."""
        ...

    async def append_audit(self, entries: Sequence[NewAudit]) -> None:
        """Chains each to the one before."""
        ...

    async def trim_audit(self, before: datetime) -> None:
        """Forgets entries from the old end; what is left still verifies from its first line on."""
        ...

    async def put_secret(self, secret: SecretRecord) -> None: ...
    async def remove_secret(self, site: SiteName, name: str) -> None: ...

    async def put_revisions(self, revisions: Sequence[Revision], *, keep: int) -> None:
        """Keeps the newest `keep` of each deployment that is named. One that comes again is the newest again."""
        ...

    async def drop_revisions(self, deployment_ids: Sequence[DeploymentId]) -> None: ...
    async def put_pin(self, pin: Pin) -> None:
        """Takes the place of the deployment's earlier one."""
        ...

    async def drop_pins(self, deployment_ids: Sequence[DeploymentId]) -> None: ...
    async def put_desired_files(self, files: Sequence[DesiredFile]) -> None: ...
    async def drop_desired_files(self, deployment_ids: Sequence[DeploymentId]) -> None: ...

    async def enqueue(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Appends to the outbox."""
        ...

    async def dequeue(self, up_to_sequence: int) -> None: ...
    async def drop_outbox(self, after_sequence: int) -> None:
        """Forgets what waits behind this one. The numbers of what is dropped are not given out again."""
        ...

    async def set_value(self, key: str, value: str) -> None: ...


class Store(Protocol):
    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work` in the next group commit and returns when it is durable.

        Many callers share one commit; a `work` that raises is rolled back alone. `work` does no network call
        and awaits nothing but its transaction.
        """
        ...

    def read(self) -> AbstractAsyncContextManager[Reader]:
        """A consistent view of what is committed."""
        ...

    async def wait_for_event(self, after: int) -> None:
        """Returns once the log has an event with an id above `after`."""
        ...
