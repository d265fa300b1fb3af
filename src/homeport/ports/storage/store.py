"""Central's and a site's database."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from homeport.core.audit.chain import Ends
from homeport.core.inference.models.entries import ModelEntry
from homeport.core.inference.records import StoredArtifact, StoredTask, Usage
from homeport.core.jobs.job import Job, JobFile
from homeport.core.margo.records import ManifestArtifact, ManifestRecord, MargoDevice, StatusRecord
from homeport.core.model.access import ApiToken, AuditEntry, NewAudit, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, NewEvent, Site, Subject
from homeport.core.model.identity import IdentityRecord, IdentityStatus, JoinToken
from homeport.core.model.instance import Instance, Unhealthy
from homeport.core.model.lease import Lease
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.core.pipelines.model import Definition, ItemKey, ItemResult, Run
from homeport.lazy_dataclass import dataclass
from homeport.ports.storage.lists import AppFilter, Counts, Cut, DeploymentFilter, Item, Listing, Page, Seen, Where
from homeport.ports.storage.telemetry import TelemetryReader, TelemetryWriter
from homeport.vocabulary import (
    AppId,
    Commit,
    DeploymentId,
    Digest,
    JobId,
    LogStream,
    NodeId,
    ProfileType,
    RolloutId,
    RolloutState,
    RunId,
    SiteName,
    SubjectKind,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AppRecord:
    """An app version in the catalog. `descriptor` is the parsed margo.yaml as plain data, `source` its bytes."""

    id: AppId
    category: str
    app_name: str
    """The folder name in the registry; users deploy by it."""
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
    """A deployment file that a site has accepted, as bytes; a node's orders are derived from it."""

    deployment_id: DeploymentId
    path: str
    revision: Digest
    content: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A report in a site's outbox. Sequences are never reused; only dropped reports leave a gap."""

    sequence: int
    body: Mapping[str, Any]
    size_bytes: int = field(default=0, compare=False)
    """The stored size; 0 where it is unknown."""


@dataclass(frozen=True, slots=True)
class RevisionUser:
    """A stored revision, and the deployment that it is of."""

    deployment_id: DeploymentId
    revision: Digest
    site: SiteName
    name: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row of the database that could not be read. It is left out of answers, and nothing may be concluded from
    its absence."""

    table: str
    key: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """A site's report that central could not process, as received: for people, and for a version that can read it."""

    site: SiteName
    epoch: str
    sequence: int
    kind: str
    why: str
    body: str
    """JSON; truncated at `SET_ASIDE_CHARACTERS_MAX`."""
    at: datetime


@dataclass(frozen=True, slots=True)
class JobReport:
    """A change of a job that its site has to report to central."""

    position: int
    """Grows at a site with each report, and is never reused."""
    body: str
    """JSON."""


SET_ASIDE_CHARACTERS_MAX: Final = 100_000
SET_ASIDE_MAX: Final = 1_000
"""Maximum per site; the newest are kept."""


APPS: Final[Listing[AppRecord, AppFilter]] = Listing("apps", {"name": (str, str, str, str), "added": (datetime, str)})
"""By name: the newest version of each first."""


class SeenReader(Protocol):
    """The queries that are also available to callers limited to some sites (`fleet.shared.scope` narrows them).
    A query that is not here cannot be used for such a caller: adding one requires deciding how it is scoped."""

    async def page(self, listing: Listing[Item, Seen], where: Seen, cut: Cut) -> Page[Item]:
        """The part of a list that `cut` selects. The list's filter must be `Scoped`."""
        ...

    async def counts(self, listing: Listing[Any, Seen], where: Seen, by: Sequence[str] = ()) -> Counts:
        """The number of matches for each combination of values of the columns `by`; without columns the total, under
        `()`."""
        ...

    async def sites(self) -> Sequence[Site]: ...
    async def site(self, name: SiteName) -> Site | None: ...
    async def nodes(self, site: SiteName | None = None) -> Sequence[Node]: ...
    async def nodes_called(self, node_id: NodeId) -> Sequence[Node]:
        """A node's id is unique only within its site, so a fleet may have several of one name."""
        ...

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        """All holds, including expired ones until they are removed."""
        ...

    async def secrets(self, site: SiteName | None = None) -> Sequence[SecretRecord]: ...
    async def pins(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Pin]: ...
    async def margo_device_counts(self) -> Mapping[SiteName, int]:
        """The number of devices of each Margo client that has any."""
        ...

    async def deployments(self, where: DeploymentFilter) -> Sequence[Deployment]: ...
    async def deployment(self, deployment_id: DeploymentId) -> Deployment | None: ...
    async def deployments_by_ids(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]: ...
    async def deployments_by_prefix(self, prefix: str) -> Sequence[Deployment]: ...
    async def instances(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Instance]:
        """Newest incarnation of each; all of them when `deployment_ids` is None."""
        ...

    async def revisions(self, deployment_id: DeploymentId) -> Sequence[Revision]:
        """The stored contents of a deployment, newest first."""
        ...

    async def versions_kept(self, deployment_ids: Sequence[DeploymentId]) -> Mapping[Digest, str]:
        """The app version of each of their stored revisions."""
        ...

    async def rollouts(
        self, states: Collection[RolloutState] | None = None, *, name: str | None = None
    ) -> Sequence[RolloutRow]:
        """Newest first; filtered by `states` and by name, where given."""
        ...

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None: ...

    async def jobs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Job]:
        """Jobs whose id begins with this, the exact one first; an id is unique only within its site."""
        ...

    async def job_file(self, job: Job, path: str) -> bytes | None:
        """An artifact of a job that was read before, so that only those who may see the job get it; its output under
        the empty path."""
        ...

    async def pipeline_runs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Run]:
        """Runs whose id begins with this, the exact one first."""
        ...

    async def pipeline_results(self, run: Run) -> Mapping[ItemKey, ItemResult]:
        """Of a run that was read before, so that only those who may see the run get them."""
        ...

    async def pipeline(self, name: str) -> Definition | None: ...

    async def history(self, deployment_id: DeploymentId, *, newest: int | None = None) -> Sequence[HistoryEntry]:
        """In the order of writing: all of it, or only so many of the newest."""
        ...

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        """Of all deployments or of one, in the order of writing."""
        ...

    async def events(
        self, *, after: int, limit: int, deployment_id: DeploymentId | None = None, subject: Subject | None = None
    ) -> Sequence[Event]: ...
    async def last_event_id(self) -> int: ...

    async def value(self, key: str) -> str | None:
        """One of the role's own few values: indexed commit, counters, site id."""
        ...


class Reader(SeenReader, TelemetryReader, Protocol):
    """Queries, each named for what it answers; these are for the role itself and for callers who may see every
    site."""

    def left_out(self, table: str) -> Sequence[tuple[str, ...]]:
        """The keys of the table's rows that this reader met and could not read, as far as they can be shown."""
        ...

    async def revisions_of(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Revision]:
        """The stored contents of several deployments, in no particular order."""
        ...

    async def has_event_about(self, kind: SubjectKind, *, after: int) -> bool:
        """Whether the log has an event with a subject of this kind and an id above `after`."""
        ...

    async def heard_longest_ago(self, *, limit: int) -> Sequence[Site]:
        """Sites whose silence is not recorded, those with the oldest report first."""
        ...

    async def revision_users(self) -> Sequence[RevisionUser]:
        """Every stored revision of every deployment that is not archived, without its content."""
        ...

    async def peer_protocols(self) -> Sequence[tuple[str, int, int]]:
        """The number of sites and nodes with each protocol version: role, version, count."""
        ...

    async def page(self, listing: Listing[Item, Where], where: Where, cut: Cut) -> Page[Item]: ...
    async def counts(self, listing: Listing[Any, Where], where: Where, by: Sequence[str] = ()) -> Counts: ...

    async def apps(
        self, *, category: str | None = None, app_name: str | None = None, version: str | None = None
    ) -> Sequence[AppRecord]: ...
    async def app(self, app_id: AppId) -> AppRecord | None: ...
    async def profiles(self, app_id: AppId) -> Sequence[ProfileRecord]: ...
    async def components(self, app_id: AppId) -> Sequence[ComponentRecord]: ...

    async def tokens(self) -> Sequence[ApiToken]: ...
    async def token(self, token_id: str) -> ApiToken | None: ...
    async def identities(self, standing: IdentityStatus | None = None) -> Sequence[IdentityRecord]: ...
    async def identity(self, spiffe_id: str) -> IdentityRecord | None: ...
    async def join_tokens(self) -> Sequence[JoinToken]: ...
    async def join_token(self, token_id: str) -> JoinToken | None: ...
    async def audit(self, *, after: int, limit: int) -> Sequence[AuditEntry]:
        """Those after a position, oldest first."""
        ...

    async def last_audit(self) -> AuditEntry | None: ...
    async def audit_ends(self) -> Ends:
        """The first and last position of the trail, recorded when it was last written and trimmed."""
        ...

    async def secret(self, site: SiteName, name: str) -> SecretRecord | None: ...

    async def task(self, task_id: str) -> StoredTask | None: ...
    async def tasks(self, task_ids: Sequence[str]) -> Sequence[StoredTask]: ...
    async def unfinished_tasks(self) -> Sequence[StoredTask]:
        """Oldest first."""
        ...

    async def artifact(self, artifact_id: str) -> StoredArtifact | None: ...
    async def owns_artifact(self, artifact_id: str, owner: str) -> bool:
        """Whether it is there and the key has posted it, alone or after others, or it has no owner."""
        ...

    async def artifacts(self, owner: str | None, *, limit: int) -> Sequence[StoredArtifact]:
        """The newest first; those of one owner and those without an owner, or all where no owner is given."""
        ...

    async def catalog_models(self) -> Sequence[ModelEntry]:
        """By id."""
        ...

    async def catalog_model(self, model_id: str) -> ModelEntry | None: ...
    async def count_catalog_models(self) -> int: ...
    async def usage(self, since_day: str) -> Sequence[Usage]:
        """Of every caller, by day and model."""
        ...

    async def site_usage(self, since_day: str) -> Sequence[tuple[SiteName, Usage]]:
        """At central: the same of the task planes of sites."""
        ...

    async def count_site_usage(self, site: SiteName) -> int:
        """How many rows a site has."""
        ...

    async def jobs(self, keys: Sequence[tuple[SiteName, JobId]]) -> Sequence[Job]:
        """Those that exist."""
        ...

    async def pipeline_run(self, run_id: RunId) -> Run | None: ...
    async def scheduled_pipelines(self) -> Sequence[Definition]:
        """Those with a time of their schedule to come, the earliest first."""
        ...

    async def job_reports(self, *, after: int, limit: int) -> Sequence[JobReport]:
        """Reports to central that wait, in order."""
        ...

    async def set_aside(self, site: SiteName | None = None) -> Sequence[SetAside]:
        """Reports that could not be processed, oldest first."""
        ...

    async def margo_manifests_of(self, sites: Sequence[SiteName]) -> Sequence[ManifestRecord]:
        """The newest manifest of each Margo client. In a transaction no other process writes them before the end."""
        ...

    async def revision_contents(self, wanted: Mapping[DeploymentId, Digest]) -> Mapping[DeploymentId, bytes]:
        """The content of each at this revision, where it is stored."""
        ...

    async def value_as(self, key: str, parse: Callable[[str], T]) -> T | None:
        """What `parse` makes of one of the role's own values; None where it is not set, or `parse` raises anything:
        then it is a row that cannot be read."""
        ...

    async def instance_values(self, name: str, parse: Callable[[str], T]) -> Mapping[tuple[DeploymentId, NodeId], T]:
        """What the role keeps about each instance beside its state, a row for each, under this name. Those that
        `parse` raises anything for are rows that cannot be read."""
        ...

    async def values(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Those of the role's own values that are set."""
        ...

    async def margo_artifact(self, site: SiteName, digest: Digest) -> ManifestArtifact | None: ...
    async def margo_devices(self, site: SiteName) -> Sequence[MargoDevice]: ...
    async def margo_device_ids(self, site: SiteName, among: Sequence[str] | None = None) -> Sequence[str]:
        """Only those of `among`, or all."""
        ...

    async def margo_devices_of(self, sites: Sequence[SiteName]) -> Sequence[MargoDevice]: ...
    async def margo_statuses(
        self, site: SiteName, deployment_id: DeploymentId | None = None
    ) -> Sequence[StatusRecord]:
        """The last report of each deployment on each device."""
        ...

    async def desired_files(self) -> Sequence[DesiredFile]: ...
    async def outbox(self, *, limit: int, after: int = 0) -> Sequence[Outgoing]: ...
    async def outbox_size(self) -> int: ...
    async def outbox_bytes(self) -> int:
        """The size of the queued reports, without the database's overhead."""
        ...

    async def outbox_left(self) -> int:
        """The sequence of the last report that was removed; 0 before the first."""
        ...


class Transaction(Reader, TelemetryWriter, Protocol):
    """Reads and writes that become durable together, or not at all."""

    async def add_app(
        self, app: AppRecord, profiles: Sequence[ProfileRecord], components: Sequence[ComponentRecord]
    ) -> None:
        """Raises Conflict when category, app name and version exist already."""
        ...

    async def remove_app(self, app_id: AppId) -> None: ...

    async def put_site(self, site: Site) -> None: ...
    async def remove_site(self, name: SiteName) -> None:
        """Only the site itself; the caller removes everything else that belongs to it."""
        ...

    async def touch_sites(self, names: Sequence[SiteName], at: datetime) -> None:
        """They are in contact; unknown names are ignored."""
        ...

    async def put_node(self, node: Node) -> None: ...
    async def touch_nodes(self, site: SiteName, seen: Mapping[NodeId, datetime]) -> None: ...
    async def remove_node(self, site: SiteName, node_id: NodeId) -> None: ...
    async def put_holds(self, site: SiteName, holds: Sequence[Hold]) -> None:
        """Replaces all holds of the site."""
        ...

    async def put_deployments(self, deployments: Sequence[Deployment]) -> None:
        """Inserts (version 1) or updates by id, guarded like `put_instances`."""
        ...

    async def put_instances(self, instances: Sequence[Instance]) -> None:
        """Inserts (version 1) or updates, guarded: each update expects the stored version to be one less.

        Raises `homeport.errors.Conflict` when another write came first; the transaction then changes nothing.
        """
        ...

    async def set_steps(self, steps: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
        """Sets the current activity of each instance. Informational: not guarded, and unknown keys are ignored."""
        ...

    async def set_health(self, observed: Mapping[tuple[DeploymentId, NodeId], Unhealthy | None]) -> None:
        """Stores the observed health of installed instances; None for healthy again. Like `set_steps` it is not
        guarded, and unknown keys are ignored."""
        ...

    async def drop_instances(self, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None: ...

    async def put_rollouts(self, rollouts: Sequence[RolloutRow]) -> None:
        """Inserts (version 1) or updates by id, guarded like `put_instances`."""
        ...

    async def put_jobs(self, jobs: Sequence[Job]) -> None:
        """Inserts (version 1) or updates by site and id, guarded like `put_instances`."""
        ...

    async def put_job_files(self, job: Job, files: Sequence[JobFile]) -> None:
        """Replaces the artifacts and the output of a job."""
        ...

    async def trim_jobs(self, *, keep: int, before: datetime) -> int:
        """Deletes jobs that ended before a time, and all but the newest `keep` of the ended ones, with their files.
        Returns how many."""
        ...

    async def add_job_reports(self, reports: Sequence[JobReport]) -> None: ...
    async def drop_job_reports(self, up_to_position: int) -> None: ...

    async def put_pipeline_runs(self, runs: Sequence[Run]) -> None:
        """Inserts (version 1) or updates by id, guarded like `put_instances`."""
        ...

    async def put_pipeline_results(self, run_id: RunId, results: Mapping[ItemKey, ItemResult]) -> None:
        """Adds what items of a run have left, or replaces it."""
        ...

    async def trim_pipeline_runs(self, *, keep: int, before: datetime) -> int:
        """Deletes runs that ended before a time, and all but the newest `keep` of the ended ones, with their results.
        Returns how many."""
        ...

    async def put_pipelines(self, definitions: Sequence[Definition]) -> None:
        """Inserts (version 1) or updates by name, guarded like `put_instances`."""
        ...

    async def remove_pipeline(self, name: str) -> None: ...
    async def set_pipeline_due(self, definition: Definition, next_at: datetime | None) -> None:
        """When its schedule is due next. Ignored where it was saved again since it was read, or removed."""
        ...

    async def append_history(self, entries: Sequence[HistoryEntry]) -> None: ...
    async def append_events(self, events: Sequence[NewEvent]) -> None: ...
    async def trim_events(self, stream: LogStream, *, keep: int, before: datetime | None = None) -> None:
        """Deletes all but the newest `keep` events of the stream, and those before a time; history and the events of
        other streams stay."""
        ...

    async def put_token(self, token: ApiToken) -> None: ...
    async def lease(self, name: str) -> Lease | None:
        """The last holder. No other process gets the lease before this transaction ends."""
        ...

    async def put_identity(self, record: IdentityRecord) -> None: ...
    async def drop_identities(self, spiffe_ids: Sequence[str]) -> None: ...
    async def put_join_token(self, token: JoinToken) -> None: ...
    async def use_join_token(self, token_id: str, *, by: str, at: datetime) -> bool:
        """Marks it used; False when it was used already. Guarded, so that only one of two concurrent uses
        succeeds."""
        ...

    async def append_audit(self, entries: Sequence[NewAudit]) -> None:
        """Chains each entry to the one before."""
        ...

    async def trim_audit(self, before: datetime) -> None:
        """Deletes the oldest entries; the rest still verifies from its first entry."""
        ...

    async def put_margo_manifests(self, records: Sequence[ManifestRecord]) -> None:
        """Each only where its version is higher than the stored one."""
        ...

    async def put_margo_artifacts(self, artifacts: Sequence[ManifestArtifact]) -> None: ...
    async def drop_margo_artifacts(self, before: Mapping[SiteName, int]) -> None:
        """Of each client, those that no manifest since this version lists."""
        ...

    async def put_margo_device(self, device: MargoDevice) -> None: ...
    async def drop_margo_devices(self, site: SiteName, ids: Sequence[str]) -> None: ...
    async def put_margo_status(self, status: StatusRecord) -> None: ...
    async def drop_margo_client(self, site: SiteName) -> None:
        """Devices, status reports and artifacts. The manifest stays: its version is never used again."""
        ...

    async def put_secret(self, secret: SecretRecord) -> None: ...
    async def remove_secret(self, site: SiteName, name: str) -> None: ...

    async def put_revisions(self, revisions: Sequence[Revision], *, keep: int) -> None:
        """Keeps the newest `keep` of each named deployment. A revision that is put again becomes the newest."""
        ...

    async def drop_revisions(self, deployment_ids: Sequence[DeploymentId]) -> None: ...
    async def put_pin(self, pin: Pin) -> None:
        """Replaces the deployment's earlier pin over the same revision."""
        ...

    async def drop_pins(self, deployment_ids: Sequence[DeploymentId]) -> None: ...
    async def add_tasks(self, tasks: Sequence[StoredTask]) -> Sequence[StoredTask]:
        """Inserts those whose id is new; returns the others, as they are stored."""
        ...

    async def put_tasks(self, tasks: Sequence[StoredTask]) -> None:
        """Inserts or replaces by id."""
        ...

    async def start_tasks(self, task_ids: Sequence[str]) -> None:
        """Marks those that are queued as started."""
        ...

    async def trim_tasks(self, *, keep: int) -> None:
        """Deletes all but the newest `keep` that have ended."""
        ...

    async def put_artifacts(self, artifacts: Sequence[StoredArtifact]) -> None: ...
    async def share_artifacts(self, artifacts: Sequence[StoredArtifact]) -> None:
        """After they were put: those that another owner put before belong to these owners too."""
        ...

    async def trim_artifacts(self, *, keep: int, bytes_max: int) -> None:
        """Of the keys that have most, the oldest go, until there are so many and so large ones. What another key has
        too becomes that key's."""
        ...

    async def add_catalog_models(self, entries: Sequence[ModelEntry]) -> None:
        """Those that are not there; what is there stays as it is."""
        ...

    async def change_catalog_model(
        self, model_id: str, change: Callable[[ModelEntry | None], ModelEntry | None]
    ) -> ModelEntry | None:
        """Replaces a model, or None for one that is not there, by what `change` makes of it; None removes it. No
        other process changes it in between. Returns what is there now; raises what `change` raises."""
        ...

    async def add_usage(self, usage: Sequence[Usage]) -> None:
        """Adds the numbers to those stored."""
        ...

    async def put_site_usage(self, site: SiteName, usage: Sequence[Usage]) -> None:
        """Replaces what the site said before of each key, day and model, where the number of requests has grown."""
        ...

    async def put_aside(self, reports: Sequence[SetAside]) -> None:
        """Keeps the newest `SET_ASIDE_MAX` of each named site."""
        ...

    async def drop_aside(self, reports: Sequence[SetAside]) -> None: ...
    async def put_desired_files(self, files: Sequence[DesiredFile]) -> None: ...
    async def drop_desired_files(self, deployment_ids: Sequence[DeploymentId]) -> None: ...

    async def enqueue(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Appends to the outbox."""
        ...

    async def dequeue(self, up_to_sequence: int) -> None: ...
    async def drop_outbox(self, after_sequence: int) -> None:
        """Deletes the queued reports after this sequence. Their sequences are not reused."""
        ...

    async def set_value(self, key: str, value: str) -> None: ...
    async def put_instance_values(self, name: str, values: Mapping[tuple[DeploymentId, NodeId], str]) -> None: ...
    async def drop_instance_values(self, name: str, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None: ...


class Store(Protocol):
    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work` in the next group commit and returns when it is durable.

        Many callers share one commit; a `work` that raises is rolled back alone. `work` does no network call
        and awaits nothing but its transaction.
        """
        ...

    def read(self) -> AbstractAsyncContextManager[Reader]:
        """A consistent snapshot of what is committed."""
        ...

    async def wait_for_event(self, after: int) -> int:
        """Returns once the log has an event with an id above `after`: the last one that is known here."""
        ...
