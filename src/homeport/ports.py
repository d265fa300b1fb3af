"""What the use-cases need from the outside world. Adapters implement these; tests run one conformance suite
per port over every adapter, the fake included.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from homeport.core.audit import Ends
from homeport.core.model.access import ApiToken, AuditEntry, NewAudit, SecretRecord
from homeport.core.model.deployment import ComponentSpec, Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, NewEvent, Site
from homeport.core.model.identity import IdentityRecord, Issued, JoinToken, Peer, Standing, TrustBundle
from homeport.core.model.instance import Instance
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.core.model.rollout import RolloutRow
from homeport.core.secrets import SecretsThere
from homeport.core.tracing import Span, TraceContext
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


# --- time and chance -------------------------------------------------------------------------------------


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds for measuring and waiting; never steps."""
        ...


class Ids(Protocol):
    def new(self) -> str:
        """A fresh UUID."""
        ...


class InThread(Protocol):
    """Runs something that blocks where it holds nobody up: `anyio.to_thread.run_sync`, in all but simulations."""

    async def __call__(self, work: Callable[..., T], /, *arguments: Any) -> T: ...


# --- traces ---------------------------------------------------------------------------------------------


class Tracer(Protocol):
    """Where finished spans go. Neither call waits, and neither ever fails."""

    def begin(self, parent: TraceContext | None) -> TraceContext:
        """A fresh span's context: below `parent`, or the first of a new trace."""
        ...

    def export(self, span: Span) -> None: ...


# --- store: central's and a site's database ---------------------------------------------------------------


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
    """A report waiting in a site's outbox. Sequence numbers have no gaps and are never reused."""

    sequence: int
    body: Mapping[str, Any]


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
    async def outbox(self, *, limit: int) -> Sequence[Outgoing]: ...
    async def outbox_size(self) -> int: ...
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


# --- Git ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeFile:
    path: str
    content: bytes
    is_regular: bool = True
    """False for a link or a submodule: it is there, so it was not removed, but what it leads to is not read."""


@dataclass(frozen=True, slots=True)
class Change:
    """Write `content` at `path`; None removes the file."""

    path: str
    content: bytes | None


class GitSource(Protocol):
    """One remote repository and branch, through a bare clone of our own."""

    url: str

    async def fetch(self) -> Commit | None:
        """The branch's newest commit, now present here; None when the remote has no such branch yet.

        Raises GitUnavailable.
        """
        ...

    async def head(self) -> Commit | None:
        """The newest commit already here."""
        ...

    async def files(self, commit: Commit, folder: str, *, size_max: int) -> Sequence[TreeFile]:
        """Files below `folder`, recursively, sorted by path. Links are named and not followed; a file above
        `size_max` has only its first `size_max + 1` bytes, so that the reader can refuse it by name."""
        ...

    async def changed_paths(self, before: Commit | None, after: Commit, folder: str) -> Sequence[str]:
        """Paths added, changed or removed below `folder` between two commits."""
        ...

    async def is_ancestor(self, older: Commit, newer: Commit) -> bool: ...

    async def origins(self, before: Commit | None, after: Commit, folder: str) -> Mapping[str, Commit]:
        """The commit that last touched each path below `folder` which changed between the two, along first parents.

        Bounded: a path whose commit lies too far back is left out. Without `before` only `after` itself is looked at.
        """
        ...

    async def commit(
        self, decide: Callable[[Commit | None], Awaitable[Sequence[Change]]], *, message: str, author: str
    ) -> Commit | None:
        """Commits on top of the remote's newest commit and pushes; a lost race asks `decide` again.

        `decide` gets the commit it will build on. No changes, no commit: returns None. Raises GitUnavailable
        with the remote's own words when it cannot be reached or refuses; nothing is left half-done.
        """
        ...

    async def log(self, commit: Commit) -> tuple[str, str, datetime]:
        """Message, author and time of a commit."""
        ...

    def watch(self) -> AsyncIterator[None]:
        """Yields whenever the remote may have moved: at once for a local path, else at each poll or nudge."""
        ...

    def nudge(self) -> None:
        """Somebody says the remote has moved: a webhook, or central."""
        ...


# --- runtime --------------------------------------------------------------------------------------------

OnProgress = Callable[[str, str, int, int], None]
"""step (a `vocabulary.Step` value), message for a person, bytes done, bytes in all (0 when unknown)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A component of a deployment, as the runtime is told about it."""

    deployment_id: DeploymentId
    spec: ComponentSpec
    folder: Path
    """Where the runtime may keep this component's files; survives restarts of the node."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container or process of a running component."""

    id: str
    name: str
    running: bool
    exit_code: int | None = None
    started_at: str = ""
    has_health_check: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """What is there of a component. `digest` is that of the ComponentSpec it was started from."""

    component: str
    digest: Digest | None
    containers: tuple[Container, ...] = ()

    @property
    def is_running(self) -> bool:
        return bool(self.containers) and all(container.running for container in self.containers)


@dataclass(frozen=True, slots=True)
class Health:
    """`healthy` None means: not known yet, ask again."""

    healthy: bool | None
    message: str = ""


class Runtime(Protocol):
    """Acts on components. Every call is idempotent; failures are WorkFailed with a code, or EngineUnavailable."""

    name: str
    """podman, docker, containerd, process or null."""
    profile_types: tuple[ProfileType, ...]

    async def start(self) -> None:
        """Makes the engine reachable; raises EngineUnavailable with a sentence that says what to do."""
        ...

    async def close(self) -> None:
        """Lets go of the engine. Workloads keep running."""
        ...

    async def version(self) -> str: ...

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        """Fetches all that `apply` needs, and changes nothing that runs."""
        ...

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        """Makes the component run as specified. What already runs from an equal spec keeps its container id."""
        ...

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        """Every component of a deployment that exists here in any form, sorted by name."""
        ...

    async def health(self, workload: Workload) -> Health:
        """Runs the component's health checks once. Without any, running is healthy."""
        ...

    def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]: ...

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None: ...


# --- registry of components -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layer:
    media_type: str
    content: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Artifact:
    artifact_type: str
    layers: tuple[Layer, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    config: Layer | None = None
    """For artifacts that are told by the type of their config, such as helm charts; only for pushing."""


class Registry(Protocol):
    """An OCI registry. References are `oci://host[:port]/name`."""

    async def pull(self, repository: str, tag: str) -> Artifact:
        """Every layer checked against its digest. Raises NotFound, PeerUnavailable, InvalidInput."""
        ...

    async def push(self, repository: str, tag: str, artifact: Artifact) -> Digest: ...


# --- charts, looked into before they are deployed ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartVerdict:
    """What a node without Kubernetes would say of a chart."""

    refused: str | None = None
    """Code and sentence of the failure that a deploy would end in."""
    notes: tuple[str, ...] = ()
    unknown: str | None = None
    """Why it could not be found out."""


class Charts(Protocol):
    async def judge(self, spec: ComponentSpec) -> ChartVerdict: ...


# --- links between the roles ----------------------------------------------------------------------------

NodeNews = Progress | Result


@dataclass(frozen=True, slots=True)
class Hello:
    """The first word of a node on a new stream."""

    info: NodeInfo
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    pass


@dataclass(frozen=True, slots=True)
class News:
    """`sequence` is 0 for news that need not be acknowledged (Progress)."""

    sequence: int
    news: NodeNews


@dataclass(frozen=True, slots=True)
class Welcome:
    site: SiteName
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """News up to this sequence is durable at the site; the node may forget it."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Farewell:
    """The node was unregistered by a person: it stops connecting until it is restarted."""

    reason: str


FromNode = Hello | Beat | News
ToNode = Welcome | Order | Acknowledged | Farewell


class Stream(Protocol):
    """The node's end of one Connect stream."""

    async def send(self, message: FromNode) -> None: ...
    def __aiter__(self) -> AsyncIterator[ToNode]: ...


class SiteLink(Protocol):
    """How a node reaches its site. `connect` raises PeerUnavailable; a stream that ends, ends its iteration."""

    def connect(self) -> AbstractAsyncContextManager[Stream]: ...

    async def unregister(self, node_id: NodeId) -> None:
        """Says good-bye: the site forgets the node at once."""
        ...


class NodeSession(Protocol):
    """The site's end of one Connect stream."""

    async def send(self, message: ToNode) -> None:
        """Raises PeerUnavailable when the node is gone."""
        ...

    def __aiter__(self) -> AsyncIterator[FromNode]: ...


class NodeReception(Protocol):
    """The site's side of `homeport.v1.Nodes`, behind whichever link nodes come through.

    `peer` is the machine that the link has authenticated; None for somebody in this process, or on this machine where
    the link is open to it. A peer is believed for itself alone: every call raises NotAuthorized for another's node.
    """

    heartbeat_seconds: float
    site: SiteName

    async def register(self, info: NodeInfo, peer: Peer | None = None) -> None: ...
    async def beat(self, node_id: NodeId, peer: Peer | None = None) -> None:
        """Raises NotFound for a node that must register first."""
        ...

    async def update(self, node_id: NodeId, capabilities: Capabilities, peer: Peer | None = None) -> None: ...
    async def unregister(self, node_id: NodeId, peer: Peer | None = None) -> None: ...
    async def list_nodes(self, peer: Peer | None = None) -> Sequence[Node]: ...
    async def converse(self, session: NodeSession, peer: Peer | None = None) -> None:
        """Talks with a connected node until its stream ends. Who it is and whether it is accepted is asked again at
        every message."""
        ...


@dataclass(frozen=True, slots=True)
class Moved:
    """Central tells a site that the deployments repository has moved."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Somebody at central asks a site to forget one of its nodes."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class SecretsChanged:
    """Central has another secret for the site, which asks for it at once."""


@dataclass(frozen=True, slots=True)
class ExpectNode:
    """Central made a join token for a node of the site; only its hash travels."""

    token: JoinToken


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Somebody at central wants a node emptied, or, without a reason, to take work again."""

    node_id: NodeId
    reason: str | None


@dataclass(frozen=True, slots=True)
class SetHold:
    """Somebody at central wants something at the site left as it is for a while."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class LiftHold:
    deployment_id: DeploymentId | None
    by: str


@dataclass(frozen=True, slots=True)
class RollBack:
    """Somebody at central goes back to an older revision while Git cannot be written."""

    deployment_id: DeploymentId
    revision: Digest
    reason: str
    author: str


@dataclass(frozen=True, slots=True)
class NodeIdentities:
    """Somebody at central asks a site to list, approve or remove identities of its nodes; the site answers."""

    question: str
    step: str
    """list, approve or remove."""
    name: str
    by: str


Request = RemoveNode | SecretsChanged | ExpectNode | RollBack | DrainNode | SetHold | LiftHold | NodeIdentities
"""What central asks of one site."""
FromCentral = Moved | Request


class CentralLink(Protocol):
    """How a site reaches central. All calls raise PeerUnavailable while central is gone."""

    async def join(self, site: SiteName, *, epoch: str, software_version: str) -> int:
        """Makes the site known; returns the last report sequence of this epoch that central has made durable.

        An epoch is one life of the site's database: sequences begin anew with each.
        """
        ...

    async def report(
        self, site: SiteName, reports: Sequence[Outgoing], *, epoch: str, seen: Mapping[NodeId, datetime]
    ) -> int:
        """Returns the last sequence that is durable at central. Repeats are recognised and harmless.

        `seen` says when each node was last heard; it is not queued, for the next call says it anew. An empty
        call is the site's own heartbeat.
        """
        ...

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        """The site's own secrets: all names, and the values of those whose version it does not know."""
        ...

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        """What the site says to a question that it heard while it watched."""
        ...

    def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        """Ends, or raises PeerUnavailable, when the connection does; the caller opens it again."""
        ...


# --- identity -------------------------------------------------------------------------------------------


class Authority(Protocol):
    """Whoever signs: central's own authority, a site's intermediate, or files that somebody else wrote.

    Calls are quick (some hundred microseconds) and never touch the network.
    """

    domain: str

    def issue(
        self, csr: bytes, *, spiffe_id: str, dns_names: Sequence[str] = (), lifetime_seconds: float, now: datetime
    ) -> Issued:
        """Signs a leaf for the key that the request proves; the request's own wishes for a name are not read.

        Raises InvalidInput for a request that proves nothing or a key that is not accepted, Refused for an id that
        this authority may not vouch for.
        """
        ...

    def issue_intermediate(self, csr: bytes, *, spiffe_id: str, lifetime_seconds: float, now: datetime) -> Issued: ...

    def bundle(self) -> TrustBundle: ...


class Vault(Protocol):
    """Encrypts secrets at rest with a key that never leaves the machine.

    Sealing secrets into Git will be another implementation of the same port: sealed for a site's public key by
    whoever commits, opened by the site alone, with `context` as it is here.
    """

    def seal(self, plain: bytes, *, context: str) -> bytes:
        """`context` (site and name, say) is authenticated: a sealed value cannot be passed off as another's."""
        ...

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """Raises InvalidInput for anything that was not sealed here with this context."""
        ...

    def rotate(self) -> int:
        """Seals with a new key from now on, durably, and gives its number; what older ones sealed still opens.
        Raises TransientError, with nothing changed. May wait for the disk."""
        ...

    def forget_older(self) -> None:
        """Deletes every key but the newest. To be called when nothing durable is sealed with another; what was
        read just before still opens. Raises TransientError, with nothing changed. May wait for the disk."""
        ...
