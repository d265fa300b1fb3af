"""A store in memory, with explicit durability: what was committed is on the `Disk` and survives its role.

It keeps the promises of `ports.Store` as the databases do (the same conformance suite says so): guarded writes,
snapshots for readers, numbers without gaps, times in UTC and data that went through JSON. Around every commit it
calls its hooks, where a simulation lets roles die.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar, cast

import anyio

from homeport.adapters.store.columns import from_json, storable, to_json, utc
from homeport.core.audit.chain import Ends, Mark, append
from homeport.core.inference.models.entries import ModelEntry
from homeport.core.inference.records import StoredArtifact, StoredTask, TaskState, Usage, fair_share, kept_of
from homeport.core.jobs.job import ENDED, Job, JobFile
from homeport.core.margo.records import ManifestArtifact, ManifestRecord, MargoDevice, StatusRecord
from homeport.core.model.access import ApiToken, AuditEntry, NewAudit, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, NewEvent, Site, Subject
from homeport.core.model.identity import IdentityRecord, IdentityStatus, JoinToken
from homeport.core.model.instance import Instance, Unhealthy
from homeport.core.model.lease import Lease
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.core.pipelines.lifecycle import RUN_ENDED
from homeport.core.pipelines.model import Definition, ItemKey, ItemResult, Run
from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryKey, TelemetryRow
from homeport.errors import Conflict
from homeport.ports import (
    APPS,
    ROLLOUTS,
    TOKENS,
    WHOLE,
    AppFilter,
    AppRecord,
    ComponentRecord,
    Counts,
    Cut,
    DeploymentFilter,
    DesiredFile,
    Item,
    JobReport,
    Listing,
    Outgoing,
    Page,
    ProfileRecord,
    Reader,
    RevisionUser,
    RolloutFilter,
    SetAside,
    TokenFilter,
    Transaction,
    Where,
)
from homeport.vocabulary import (
    AppId,
    DeploymentId,
    Digest,
    JobId,
    LogStream,
    NodeId,
    RolloutId,
    RolloutState,
    RunId,
    SiteName,
    SubjectKind,
)
from tests.simulation.lists import find_counts, find_page

T = TypeVar("T")
Versioned = Definition | Deployment | Instance | Job | RolloutRow | Run

Hook = Callable[[], Awaitable[None]]
"""Called around a commit. One that raises ends the write there: before the commit nothing of it is kept."""


async def _nothing() -> None:
    await anyio.lowlevel.checkpoint()


def _there_is_space() -> None:
    pass


def _nobody(_before: "Tables", _after: "Tables") -> None:
    pass


@dataclass(frozen=True)
class Tables:
    """Never changed once committed: a transaction copies what it writes."""

    apps: dict[AppId, AppRecord] = field(default_factory=dict)
    profiles: dict[AppId, list[ProfileRecord]] = field(default_factory=dict)
    components: dict[AppId, list[ComponentRecord]] = field(default_factory=dict)
    sites: dict[SiteName, Site] = field(default_factory=dict)
    nodes: dict[tuple[SiteName, NodeId], Node] = field(default_factory=dict)
    deployments: dict[DeploymentId, Deployment] = field(default_factory=dict)
    instances: dict[tuple[DeploymentId, NodeId], Instance] = field(default_factory=dict)
    history: list[HistoryEntry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tokens: dict[str, ApiToken] = field(default_factory=dict)
    identities: dict[str, IdentityRecord] = field(default_factory=dict)
    join_tokens: dict[str, JoinToken] = field(default_factory=dict)
    audit: list[AuditEntry] = field(default_factory=list)
    ends: dict[str, Mark] = field(default_factory=dict)
    secrets: dict[tuple[SiteName, str], SecretRecord] = field(default_factory=dict)
    revisions: dict[tuple[DeploymentId, Digest], Revision] = field(default_factory=dict)
    pins: dict[tuple[DeploymentId, Digest], Pin] = field(default_factory=dict)
    aside: dict[tuple[SiteName, str, int], SetAside] = field(default_factory=dict)
    holds: dict[SiteName, list[Hold]] = field(default_factory=dict)
    rollouts: dict[RolloutId, RolloutRow] = field(default_factory=dict)
    jobs: dict[tuple[SiteName, JobId], Job] = field(default_factory=dict)
    job_files: dict[tuple[SiteName, JobId, str], bytes] = field(default_factory=dict)
    job_reports: dict[int, JobReport] = field(default_factory=dict)
    pipeline_runs: dict[RunId, Run] = field(default_factory=dict)
    pipeline_results: dict[tuple[RunId, str, int], ItemResult] = field(default_factory=dict)
    pipelines: dict[str, Definition] = field(default_factory=dict)
    desired: dict[DeploymentId, DesiredFile] = field(default_factory=dict)
    outbox: list[Outgoing] = field(default_factory=list)
    margo_manifests: dict[SiteName, ManifestRecord] = field(default_factory=dict)
    margo_artifacts: dict[tuple[SiteName, Digest], ManifestArtifact] = field(default_factory=dict)
    margo_devices: dict[tuple[SiteName, str], MargoDevice] = field(default_factory=dict)
    margo_statuses: dict[tuple[SiteName, DeploymentId, str], StatusRecord] = field(default_factory=dict)
    tasks: dict[str, StoredTask] = field(default_factory=dict)
    artifacts: dict[str, StoredArtifact] = field(default_factory=dict)
    artifact_owners: dict[tuple[str, str], None] = field(default_factory=dict)
    usage: dict[tuple[str, str, str], Usage] = field(default_factory=dict)
    site_usage: dict[tuple[str, str, str, SiteName], Usage] = field(default_factory=dict)
    catalog_models: dict[str, ModelEntry] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    instance_values: dict[tuple[str, DeploymentId, NodeId], str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    telemetry: dict[tuple[SiteName, NodeId, int, datetime], TelemetryRow] = field(default_factory=dict)
    heartbeats: dict[tuple[SiteName, NodeId, datetime], Interval] = field(default_factory=dict)


@dataclass(slots=True)
class Disk:
    tables: Tables = field(default_factory=Tables)


class MemoryReader:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def page(self, listing: Listing[Item, Where], where: Where, cut: Cut) -> Page[Item]:
        return find_page(self._tables, listing.name, where, cut)

    async def counts(self, listing: Listing[Any, Where], where: Where, by: Sequence[str] = ()) -> Counts:
        return find_counts(self._tables, listing.name, where, by)

    async def _all(self, listing: Listing[Item, Where], where: Where) -> Sequence[Item]:
        return (await self.page(listing, where, WHOLE)).items

    async def apps(
        self, *, category: str | None = None, app_name: str | None = None, version: str | None = None
    ) -> Sequence[AppRecord]:
        return await self._all(APPS, AppFilter(category=category, app_name=app_name, version=version))

    async def app(self, app_id: AppId) -> AppRecord | None:
        return self._tables.apps.get(app_id)

    async def profiles(self, app_id: AppId) -> Sequence[ProfileRecord]:
        return sorted(self._tables.profiles.get(app_id, []), key=lambda each: each.position)

    async def components(self, app_id: AppId) -> Sequence[ComponentRecord]:
        places = {each.profile_id: each.position for each in self._tables.profiles.get(app_id, [])}
        found = self._tables.components.get(app_id, [])
        return sorted(found, key=lambda each: (places[each.profile_id], each.position))

    async def sites(self) -> Sequence[Site]:
        return [self._tables.sites[name] for name in sorted(self._tables.sites)]

    async def site(self, name: SiteName) -> Site | None:
        return self._tables.sites.get(name)

    async def nodes(self, site: SiteName | None = None) -> Sequence[Node]:
        nodes = self._tables.nodes
        return [nodes[key] for key in sorted(nodes) if site is None or key[0] == site]

    async def heard_longest_ago(self, *, limit: int) -> Sequence[Site]:
        heard = [site for site in self._tables.sites.values() if site.silent_since is None and site.last_seen]
        return sorted(heard, key=lambda site: (site.last_seen, site.name))[:limit]

    async def revision_users(self) -> Sequence[RevisionUser]:
        rows = self._tables.deployments
        found = [
            RevisionUser(row.id, kept.revision, row.site, row.name)
            for kept in self._tables.revisions.values()
            if (row := rows.get(kept.deployment_id)) is not None and row.archived_at is None
        ]
        return sorted(found, key=lambda each: (each.deployment_id, each.revision))

    async def peer_protocols(self) -> Sequence[tuple[str, int, int]]:
        sites = Counter(("site", site.protocol.version) for site in await self.sites())
        nodes = Counter(("node", node.info.protocol.version) for node in await self.nodes())
        return [(*key, count) for found in (sites, nodes) for key, count in sorted(found.items())]

    async def nodes_called(self, node_id: NodeId) -> Sequence[Node]:
        return [node for node in await self.nodes() if node.id == node_id]

    async def deployments(self, where: DeploymentFilter) -> Sequence[Deployment]:
        return _sorted(
            row
            for row in self._tables.deployments.values()
            if (row.archived_at is not None) == where.archived
            and where.site in (None, row.site)
            and where.name in (None, row.name)
            and where.state in (None, row.state)
            and where.rollout_id in (None, row.rollout_id)
        )

    async def deployment(self, deployment_id: DeploymentId) -> Deployment | None:
        return self._tables.deployments.get(deployment_id)

    async def deployments_by_ids(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]:
        rows = self._tables.deployments
        return _sorted(rows[each] for each in set(deployment_ids) if each in rows)

    async def deployments_by_prefix(self, prefix: str) -> Sequence[Deployment]:
        rows = self._tables.deployments
        return _sorted(rows[each] for each in rows if each.startswith(prefix))

    async def instances(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Instance]:
        rows, wanted = self._tables.instances, None if deployment_ids is None else set(deployment_ids)
        return [rows[key] for key in sorted(rows) if wanted is None or key[0] in wanted]

    async def history(self, deployment_id: DeploymentId, *, newest: int | None = None) -> Sequence[HistoryEntry]:
        found = [each for each in self._tables.history if each.deployment_id == deployment_id]
        return found if newest is None else found[-newest:]

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        lines = [HistoryLine(number, each) for number, each in enumerate(self._tables.history, 1)]
        found = [each for each in lines if each.id > after and deployment_id in (None, each.entry.deployment_id)]
        return found[:limit]

    async def events(
        self, *, after: int, limit: int, deployment_id: DeploymentId | None = None, subject: Subject | None = None
    ) -> Sequence[Event]:
        found = [
            each
            for each in self._tables.events
            if each.id > after
            and deployment_id in (None, each.event.deployment_id)
            and subject in (None, each.event.subject)
        ]
        return found[:limit]

    async def has_event_about(self, kind: SubjectKind, *, after: int) -> bool:
        return any(each.id > after and each.event.subject.kind == kind for each in self._tables.events)

    async def last_event_id(self) -> int:
        return self._tables.counts.get("events", 0)

    async def tokens(self) -> Sequence[ApiToken]:
        return await self._all(TOKENS, TokenFilter())

    async def token(self, token_id: str) -> ApiToken | None:
        return self._tables.tokens.get(token_id)

    async def identities(self, standing: IdentityStatus | None = None) -> Sequence[IdentityRecord]:
        rows = self._tables.identities
        return [rows[key] for key in sorted(rows) if standing in (None, rows[key].standing)]

    async def identity(self, spiffe_id: str) -> IdentityRecord | None:
        return self._tables.identities.get(spiffe_id)

    async def join_tokens(self) -> Sequence[JoinToken]:
        return sorted(self._tables.join_tokens.values(), key=lambda each: each.created_at)

    async def join_token(self, token_id: str) -> JoinToken | None:
        return self._tables.join_tokens.get(token_id)

    async def audit(self, *, after: int, limit: int) -> Sequence[AuditEntry]:
        return [each for each in self._tables.audit if each.position > after][:limit]

    async def last_audit(self) -> AuditEntry | None:
        return self._tables.audit[-1] if self._tables.audit else None

    async def audit_ends(self) -> Ends:
        ends = self._tables.ends
        return Ends(ends.get("base", Mark()), ends.get("head", Mark()))

    async def secrets(self, site: SiteName | None = None) -> Sequence[SecretRecord]:
        rows = self._tables.secrets
        return [rows[key] for key in sorted(rows) if site in (None, key[0])]

    async def secret(self, site: SiteName, name: str) -> SecretRecord | None:
        return self._tables.secrets.get((site, name))

    async def revisions(self, deployment_id: DeploymentId) -> Sequence[Revision]:
        found = [each for key, each in self._tables.revisions.items() if key[0] == deployment_id]
        return sorted(sorted(found, key=lambda each: each.revision), key=lambda each: each.at, reverse=True)

    async def revisions_of(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Revision]:
        return [each for id_ in deployment_ids for each in await self.revisions(id_)]

    async def revision_contents(self, wanted: Mapping[DeploymentId, Digest]) -> Mapping[DeploymentId, bytes]:
        stored = self._tables.revisions
        return {key: stored[key, digest].content for key, digest in wanted.items() if (key, digest) in stored}

    async def telemetry(
        self, site: SiteName, node_id: NodeId, resolution_seconds: int, *, start: datetime, end: datetime
    ) -> Sequence[TelemetryRow]:
        wanted = site, node_id, resolution_seconds
        keys = sorted(key for key in self._tables.telemetry if key[:3] == wanted and start <= key[3] < end)
        return [self._tables.telemetry[key] for key in keys]

    async def telemetry_keys(
        self, site: SiteName, resolution_seconds: int, *, start: datetime
    ) -> Sequence[TelemetryKey]:
        return [
            TelemetryKey(node_id, at)
            for place, node_id, resolution, at in self._tables.telemetry
            if (place, resolution) == (site, resolution_seconds) and at >= start
        ]

    async def heartbeats(
        self, site: SiteName, node_id: NodeId, *, start: datetime, end: datetime, limit: int
    ) -> Sequence[Interval]:
        keys = sorted((key for key in self._tables.heartbeats if key[:2] == (site, node_id)), reverse=True)
        found = [self._tables.heartbeats[key] for key in keys]
        return [each for each in found if each.start < end and (each.end is None or each.end > start)][:limit]

    async def open_heartbeats(self, site: SiteName) -> Sequence[Interval]:
        return [each for key, each in self._tables.heartbeats.items() if key[0] == site and each.end is None]

    def left_out(self, table: str) -> Sequence[tuple[str, ...]]:
        return ()

    async def set_aside(self, site: SiteName | None = None) -> Sequence[SetAside]:
        return [each for each in self._tables.aside.values() if site in (None, each.site)]

    async def task(self, task_id: str) -> StoredTask | None:
        return self._tables.tasks.get(task_id)

    async def tasks(self, task_ids: Sequence[str]) -> Sequence[StoredTask]:
        return [self._tables.tasks[each] for each in task_ids if each in self._tables.tasks]

    async def unfinished_tasks(self) -> Sequence[StoredTask]:
        found = [each for each in self._tables.tasks.values() if each.state is not TaskState.ENDED]
        return sorted(found, key=lambda each: (each.at, each.id))

    async def artifact(self, artifact_id: str) -> StoredArtifact | None:
        return self._tables.artifacts.get(artifact_id)

    async def owns_artifact(self, artifact_id: str, owner: str) -> bool:
        found = self._tables.artifacts.get(artifact_id)
        is_shared = (artifact_id, owner) in self._tables.artifact_owners
        return found is not None and (found.owner in ("", owner) or is_shared)

    async def artifacts(self, owner: str | None, *, limit: int) -> Sequence[StoredArtifact]:
        shared = self._tables.artifact_owners
        found = [
            each
            for each in self._tables.artifacts.values()
            if owner is None or each.owner in ("", owner) or (each.id, owner) in shared
        ]
        return sorted(found, key=lambda each: (-each.created_ms, each.id))[:limit]

    async def catalog_models(self) -> Sequence[ModelEntry]:
        return [each for _, each in sorted(self._tables.catalog_models.items())]

    async def catalog_model(self, model_id: str) -> ModelEntry | None:
        return self._tables.catalog_models.get(model_id)

    async def count_catalog_models(self) -> int:
        return len(self._tables.catalog_models)

    async def usage(self, since_day: str) -> Sequence[Usage]:
        return [each for key, each in sorted(self._tables.usage.items()) if each.day >= since_day]

    async def site_usage(self, since_day: str) -> Sequence[tuple[SiteName, Usage]]:
        found = [(key[3], each) for key, each in sorted(self._tables.site_usage.items())]
        return [(site, each) for site, each in found if each.day >= since_day]

    async def count_site_usage(self, site: SiteName) -> int:
        return sum(key[3] == site for key in self._tables.site_usage)

    async def versions_kept(self, deployment_ids: Sequence[DeploymentId]) -> Mapping[Digest, str]:
        return {key[1]: each.app_version for key, each in self._tables.revisions.items() if key[0] in deployment_ids}

    async def pins(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Pin]:
        pins = self._tables.pins
        found = [pin for pin in pins.values() if deployment_ids is None or pin.deployment_id in deployment_ids]
        return sorted(found, key=lambda pin: (pin.deployment_id, pin.at, pin.over))

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        found = [each for name in sorted(self._tables.holds) for each in self._tables.holds[name]]
        found.sort(key=lambda each: (each.site, each.deployment_id or ""))
        return [each for each in found if site in (None, each.site)]

    async def rollouts(
        self, states: Collection[RolloutState] | None = None, *, name: str | None = None
    ) -> Sequence[RolloutRow]:
        wanted = None if states is None else frozenset(states)
        return await self._all(ROLLOUTS, RolloutFilter(states=wanted, name=name))

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None:
        return self._tables.rollouts.get(rollout_id)

    async def margo_manifests_of(self, sites: Sequence[SiteName]) -> Sequence[ManifestRecord]:
        found = self._tables.margo_manifests
        return [found[site] for site in sorted(sites) if site in found]

    async def margo_artifact(self, site: SiteName, digest: Digest) -> ManifestArtifact | None:
        return self._tables.margo_artifacts.get((site, digest))

    async def margo_devices(self, site: SiteName) -> Sequence[MargoDevice]:
        devices = self._tables.margo_devices
        return [devices[key] for key in sorted(devices) if key[0] == site]

    async def margo_device_ids(self, site: SiteName, among: Sequence[str] | None = None) -> Sequence[str]:
        return [id_ for of, id_ in self._tables.margo_devices if of == site and (among is None or id_ in among)]

    async def margo_device_counts(self) -> Mapping[SiteName, int]:
        return Counter(site for site, _ in self._tables.margo_devices)

    async def margo_devices_of(self, sites: Sequence[SiteName]) -> Sequence[MargoDevice]:
        return [each for each in self._tables.margo_devices.values() if each.site in sites]

    async def margo_statuses(
        self, site: SiteName, deployment_id: DeploymentId | None = None
    ) -> Sequence[StatusRecord]:
        found = self._tables.margo_statuses
        return [found[key] for key in sorted(found) if key[0] == site and deployment_id in (None, key[1])]

    async def jobs(self, keys: Sequence[tuple[SiteName, JobId]]) -> Sequence[Job]:
        return [self._tables.jobs[key] for key in keys if key in self._tables.jobs]

    async def jobs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Job]:
        found = [job for job in self._tables.jobs.values() if job.id.startswith(prefix)]
        return sorted(found, key=lambda job: (job.id, job.site))[:limit]

    async def job_file(self, job: Job, path: str) -> bytes | None:
        return self._tables.job_files.get((job.site, job.id, path))

    async def job_reports(self, *, after: int, limit: int) -> Sequence[JobReport]:
        reports = self._tables.job_reports
        return [reports[position] for position in sorted(reports) if position > after][:limit]

    async def pipeline_run(self, run_id: RunId) -> Run | None:
        return self._tables.pipeline_runs.get(run_id)

    async def pipeline_runs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Run]:
        found = [run for run in self._tables.pipeline_runs.values() if run.id.startswith(prefix)]
        return sorted(found, key=lambda run: run.id)[:limit]

    async def pipeline_results(self, run: Run) -> Mapping[ItemKey, ItemResult]:
        return {key[1:]: each for key, each in self._tables.pipeline_results.items() if key[0] == run.id}

    async def pipeline(self, name: str) -> Definition | None:
        return self._tables.pipelines.get(name)

    async def scheduled_pipelines(self) -> Sequence[Definition]:
        found = [(each.next_at, each.name, each) for each in self._tables.pipelines.values() if each.next_at]
        return [each for _, _, each in sorted(found)]

    async def desired_files(self) -> Sequence[DesiredFile]:
        return [self._tables.desired[key] for key in sorted(self._tables.desired)]

    async def outbox(self, *, limit: int, after: int = 0) -> Sequence[Outgoing]:
        return [each for each in self._tables.outbox if each.sequence > after][:limit]

    async def outbox_size(self) -> int:
        return len(self._tables.outbox)

    async def outbox_bytes(self) -> int:
        return sum(len(to_json(each.body)) for each in self._tables.outbox)

    async def outbox_left(self) -> int:
        waiting = self._tables.outbox
        return waiting[0].sequence - 1 if waiting else self._tables.counts.get("outbox", 0)

    async def value(self, key: str) -> str | None:
        return self._tables.values.get(key)

    async def value_as(self, key: str, parse: Callable[[str], T]) -> T | None:
        text = self._tables.values.get(key)
        return None if text is None else parse(text)

    async def instance_values(self, name: str, parse: Callable[[str], T]) -> Mapping[tuple[DeploymentId, NodeId], T]:
        rows = self._tables.instance_values.items()
        return {(deployment, node): parse(value) for (of, deployment, node), value in rows if of == name}

    async def values(self, keys: Sequence[str]) -> Mapping[str, str]:
        return {key: self._tables.values[key] for key in keys if key in self._tables.values}


class MemoryTransaction(MemoryReader):
    def __init__(self, tables: Tables) -> None:
        super().__init__(copy(tables))
        self._copied: set[str] = set()
        self._conflict: Conflict | None = None

    def commit(self) -> Tables:
        """A conflict that the work has swallowed still takes everything back."""
        if self._conflict is not None:
            raise self._conflict
        return self._tables

    def _own(self, name: str) -> Any:
        """The table, copied before its first change."""
        if name not in self._copied:
            self._copied.add(name)
            object.__setattr__(self._tables, name, getattr(self._tables, name).copy())
        return getattr(self._tables, name)

    def _next(self, name: str) -> int:
        counts = self._own("counts")
        counts[name] = counts.get(name, 0) + 1
        return cast(int, counts[name])

    async def add_app(
        self, app: AppRecord, profiles: Sequence[ProfileRecord], components: Sequence[ComponentRecord]
    ) -> None:
        if await self.apps(category=app.category, app_name=app.app_name, version=app.version):
            raise Conflict(f'The app "{app.category}/{app.app_name}" is already there in version {app.version}.')
        self._own("apps")[app.id] = kept(app)
        self._own("profiles")[app.id] = [kept(each) for each in profiles]
        self._own("components")[app.id] = [kept(each) for each in components]

    async def remove_app(self, app_id: AppId) -> None:
        for name in ("apps", "profiles", "components"):
            self._own(name).pop(app_id, None)

    async def put_site(self, site: Site) -> None:
        self._own("sites")[site.name] = kept(site)

    async def remove_site(self, name: SiteName) -> None:
        self._own("sites").pop(name, None)

    async def touch_sites(self, names: Sequence[SiteName], at: datetime) -> None:
        for name in names:
            if name in self._tables.sites:
                self._own("sites")[name] = replace(self._tables.sites[name], last_seen=utc(at), silent_since=None)

    async def put_node(self, node: Node) -> None:
        self._own("nodes")[node.site, node.id] = kept(node)

    async def touch_nodes(self, site: SiteName, seen: Mapping[NodeId, datetime]) -> None:
        for node_id, at in seen.items():
            node = self._tables.nodes.get((site, node_id))
            if node is not None and node.last_seen < at:
                self._own("nodes")[site, node_id] = replace(node, last_seen=utc(at))

    async def remove_node(self, site: SiteName, node_id: NodeId) -> None:
        self._own("nodes").pop((site, node_id), None)

    async def put_deployments(self, deployments: Sequence[Deployment]) -> None:
        for row in deployments:
            stored = self._tables.deployments.get(row.id)
            self._guard(stored is None if row.version == 1 else _is_next(stored, row), "deployments")
            self._own("deployments")[row.id] = kept(row)

    async def put_instances(self, instances: Sequence[Instance]) -> None:
        for row in instances:
            stored = self._tables.instances.get(row.key)
            begins = stored is None or row.incarnation > stored.incarnation
            self._guard(begins if row.version == 1 else _is_next(stored, row), "instances")
            self._own("instances")[row.key] = kept(row)

    async def put_margo_manifests(self, records: Sequence[ManifestRecord]) -> None:
        for record in records:
            stored = self._tables.margo_manifests.get(record.site)
            if stored is None or record.version > stored.version:
                self._own("margo_manifests")[record.site] = kept(record)

    async def put_margo_artifacts(self, artifacts: Sequence[ManifestArtifact]) -> None:
        for each in artifacts:
            self._own("margo_artifacts")[each.site, each.digest] = kept(each)

    async def drop_margo_artifacts(self, before: Mapping[SiteName, int]) -> None:
        rows = self._own("margo_artifacts")
        for key in [key for key, each in rows.items() if each.version < before.get(key[0], 0)]:
            del rows[key]

    async def put_margo_device(self, device: MargoDevice) -> None:
        self._own("margo_devices")[device.site, device.id] = kept(device)

    async def drop_margo_devices(self, site: SiteName, ids: Sequence[str]) -> None:
        for each in ids:
            self._own("margo_devices").pop((site, each), None)

    async def put_margo_status(self, status: StatusRecord) -> None:
        self._own("margo_statuses")[status.site, status.deployment_id, status.device_id] = kept(status)

    async def drop_margo_client(self, site: SiteName) -> None:
        for name in ("margo_devices", "margo_statuses", "margo_artifacts"):
            rows = self._own(name)
            for key in [key for key in rows if key[0] == site]:
                del rows[key]

    async def put_rollouts(self, rollouts: Sequence[RolloutRow]) -> None:
        for row in rollouts:
            stored = self._tables.rollouts.get(row.id)
            self._guard(stored is None if row.version == 1 else _is_next(stored, row), "rollouts")
            self._own("rollouts")[row.id] = kept(row)

    async def put_jobs(self, jobs: Sequence[Job]) -> None:
        for row in jobs:
            stored = self._tables.jobs.get(row.key)
            self._guard(stored is None if row.version == 1 else _is_next(stored, row), "jobs")
            self._own("jobs")[row.key] = kept(row)

    async def put_pipeline_runs(self, runs: Sequence[Run]) -> None:
        for row in runs:
            stored = self._tables.pipeline_runs.get(row.id)
            self._guard(stored is None if row.version == 1 else _is_next(stored, row), "pipeline_runs")
            self._own("pipeline_runs")[row.id] = kept(row)

    async def put_pipeline_results(self, run_id: RunId, results: Mapping[ItemKey, ItemResult]) -> None:
        self._own("pipeline_results").update({(run_id, *key): kept(each) for key, each in results.items()})

    async def trim_pipeline_runs(self, *, keep: int, before: datetime) -> int:
        ended = [run for run in self._tables.pipeline_runs.values() if run.state in RUN_ENDED]
        newest = sorted(ended, key=lambda run: (-run.finished_at.timestamp(), run.id))  # type: ignore[union-attr]
        gone = {run.id for run in newest[keep:]} | {run.id for run in ended if run.finished_at < before}  # type: ignore[operator]
        for run_id in gone:
            del self._own("pipeline_runs")[run_id]
            for key in [key for key in self._tables.pipeline_results if key[0] == run_id]:
                del self._own("pipeline_results")[key]
        return len(gone)

    async def put_pipelines(self, definitions: Sequence[Definition]) -> None:
        for row in definitions:
            stored = self._tables.pipelines.get(row.name)
            self._guard(stored is None if row.version == 1 else _is_next(stored, row), "pipelines")
            self._own("pipelines")[row.name] = kept(row)

    async def set_pipeline_due(self, definition: Definition, next_at: datetime | None) -> None:
        stored = self._tables.pipelines.get(definition.name)
        if stored is not None and stored.version == definition.version:
            self._own("pipelines")[definition.name] = replace(stored, next_at=next_at)

    async def remove_pipeline(self, name: str) -> None:
        self._own("pipelines").pop(name, None)

    async def put_job_files(self, job: Job, files: Sequence[JobFile]) -> None:
        owned = self._own("job_files")
        for key in [key for key in owned if key[:2] == job.key]:
            del owned[key]
        owned.update({(*job.key, storable(file.path)): file.content for file in files})

    async def trim_jobs(self, *, keep: int, before: datetime) -> int:
        ended = [job for job in self._tables.jobs.values() if job.state in ENDED and job.finished_at is not None]
        newest = sorted(ended, key=lambda job: (-job.finished_at.timestamp(), job.site, job.id))  # type: ignore[union-attr]
        gone = {job.key for job in newest[keep:]} | {job.key for job in ended if job.finished_at < before}  # type: ignore[operator]
        for key in gone:
            del self._own("jobs")[key]
            for file in [file for file in self._tables.job_files if file[:2] == key]:
                del self._own("job_files")[file]
        return len(gone)

    async def add_job_reports(self, reports: Sequence[JobReport]) -> None:
        self._own("job_reports").update({each.position: each for each in reports})

    async def drop_job_reports(self, up_to_position: int) -> None:
        for position in [each for each in self._tables.job_reports if each <= up_to_position]:
            del self._own("job_reports")[position]

    def _guard(self, is_right: bool, table: str) -> None:
        if not is_right:
            self._conflict = Conflict(f"Some {table} have changed since they were read.")
            raise self._conflict

    async def set_steps(self, steps: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
        for key, step in steps.items():
            if key in self._tables.instances:
                rows = self._own("instances")
                rows[key] = replace(rows[key], step=storable(step))

    async def set_health(self, observed: Mapping[tuple[DeploymentId, NodeId], Unhealthy | None]) -> None:
        for key, unhealthy in observed.items():
            if key in self._tables.instances:
                rows = self._own("instances")
                rows[key] = replace(rows[key], unhealthy=kept(unhealthy))

    async def drop_instances(self, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None:
        for key in keys:
            self._own("instances").pop(key, None)

    async def append_history(self, entries: Sequence[HistoryEntry]) -> None:
        self._own("history").extend([kept(each) for each in entries])

    async def append_events(self, events: Sequence[NewEvent]) -> None:
        for event in [kept(each) for each in events]:
            self._own("events").append(Event(self._next("events"), event))

    async def trim_events(self, stream: LogStream, *, keep: int, before: datetime | None = None) -> None:
        events = [each for each in self._tables.events if each.event.subject.stream is stream]
        cut = events[-keep - 1].id if len(events) > max(keep, 0) else 0
        if before is not None:
            young = next((each.id for each in events if each.event.at >= before), None)
            cut = max(cut, self._tables.counts.get("events", 0) if young is None else young - 1)
        left = [each for each in self._tables.events if each.id > cut or each.event.subject.stream is not stream]
        self._own("events")[:] = left

    async def lease(self, name: str) -> Lease | None:
        return None

    async def put_token(self, token: ApiToken) -> None:
        self._own("tokens")[token.id] = kept(token)

    async def put_identity(self, record: IdentityRecord) -> None:
        self._own("identities")[record.spiffe_id] = kept(record)

    async def drop_identities(self, spiffe_ids: Sequence[str]) -> None:
        for spiffe_id in spiffe_ids:
            self._own("identities").pop(spiffe_id, None)

    async def put_join_token(self, token: JoinToken) -> None:
        self._own("join_tokens")[token.id] = kept(token)

    async def use_join_token(self, token_id: str, *, by: str, at: datetime) -> bool:
        token = self._tables.join_tokens.get(token_id)
        if token is None or token.used_at is not None:
            return False
        self._own("join_tokens")[token_id] = replace(token, used_at=utc(at), used_by=by)
        return True

    async def append_audit(self, entries: Sequence[NewAudit]) -> None:
        if entries:
            chained = append(await self.last_audit(), [kept(each) for each in entries])
            self._own("audit").extend(chained)
            self._own("ends")["head"] = Mark.of(chained[-1])

    async def trim_audit(self, before: datetime) -> None:
        old = [each for each in self._tables.audit[:-1] if each.entry.at < before]
        if old:
            self._own("ends")["base"] = Mark.of(old[-1])
            left = [each for each in self._tables.audit if each.position > old[-1].position]
            self._own("audit")[:] = left

    async def put_secret(self, secret: SecretRecord) -> None:
        self._own("secrets")[secret.site, secret.name] = kept(secret)

    async def remove_secret(self, site: SiteName, name: str) -> None:
        self._own("secrets").pop((site, name), None)

    async def put_revisions(self, revisions: Sequence[Revision], *, keep: int) -> None:
        rows = self._own("revisions")
        rows.update({(each.deployment_id, each.revision): kept(each) for each in revisions})
        for deployment_id in {each.deployment_id for each in revisions}:
            for old in (await self.revisions(deployment_id))[keep:]:
                del rows[old.deployment_id, old.revision]

    async def drop_revisions(self, deployment_ids: Sequence[DeploymentId]) -> None:
        rows = self._own("revisions")
        for key in [key for key in rows if key[0] in deployment_ids]:
            del rows[key]

    async def put_telemetry(self, rows: Sequence[TelemetryRow]) -> None:
        keys = ((row.site, row.node_id, row.resolution_seconds, row.start) for row in rows)
        self._own("telemetry").update(zip(keys, rows, strict=True))

    async def trim_telemetry(self, resolution_seconds: int, *, before: datetime, bytes_max: int) -> tuple[int, int]:
        own = self._own("telemetry")
        rows = sorted((row for key, row in own.items() if key[2] == resolution_seconds), key=lambda row: row.start)
        left = [row for row in rows if row.start >= before]
        while sum(len(row.content) for row in left) > bytes_max:
            left = [row for row in left if row.start > left[0].start]
        for row in rows:
            if row not in left:
                del own[row.site, row.node_id, resolution_seconds, row.start]
        return len(left), sum(len(row.content) for row in left)

    async def put_heartbeats(self, site: SiteName, intervals: Sequence[Interval]) -> None:
        self._own("heartbeats").update({(site, each.node_id, each.start): each for each in intervals})

    async def trim_heartbeats(self, *, before: datetime) -> None:
        own = self._own("heartbeats")
        for key in [key for key, each in own.items() if each.end is not None and each.end < before]:
            del own[key]

    async def put_aside(self, reports: Sequence[SetAside]) -> None:
        self._own("aside").update({(each.site, each.epoch, each.sequence): kept(each) for each in reports})

    async def drop_aside(self, reports: Sequence[SetAside]) -> None:
        for each in reports:
            self._own("aside").pop((each.site, each.epoch, each.sequence), None)

    async def add_tasks(self, tasks: Sequence[StoredTask]) -> Sequence[StoredTask]:
        stored = self._own("tasks")
        known = [stored[each.id] for each in tasks if each.id in stored]
        stored.update({each.id: kept(each) for each in tasks if each.id not in stored})
        return known

    async def put_tasks(self, tasks: Sequence[StoredTask]) -> None:
        self._own("tasks").update({each.id: kept(each) for each in tasks})

    async def start_tasks(self, task_ids: Sequence[str]) -> None:
        stored = self._own("tasks")
        for task_id in task_ids:
            if task_id in stored and stored[task_id].state is TaskState.QUEUED:
                stored[task_id] = replace(stored[task_id], state=TaskState.STARTED)

    async def trim_tasks(self, *, keep: int) -> None:
        stored = self._own("tasks")
        ended = [each for each in stored.values() if each.state is TaskState.ENDED]
        for each in sorted(sorted(ended, key=lambda each: each.id), key=lambda each: each.at, reverse=True)[keep:]:
            del stored[each.id]

    async def put_artifacts(self, artifacts: Sequence[StoredArtifact]) -> None:
        for each in artifacts:
            self._own("artifacts").setdefault(each.id, kept(each))

    async def share_artifacts(self, artifacts: Sequence[StoredArtifact]) -> None:
        for each in artifacts:
            if self._tables.artifacts[each.id].owner not in ("", each.owner):
                self._own("artifact_owners")[each.id, each.owner] = None

    async def trim_artifacts(self, *, keep: int, bytes_max: int) -> None:
        stored, shared = self._own("artifacts"), self._own("artifact_owners")
        owned: dict[str, list[tuple[str, int]]] = {}
        for each in sorted(stored.values(), key=lambda each: (-each.created_ms, each.id)):
            owned.setdefault(each.owner, []).append((each.id, len(to_json(each.document))))
        count_share = fair_share(map(len, owned.values()), keep)
        bytes_share = fair_share((sum(size for _, size in of) for of in owned.values()), bytes_max)
        for of in owned.values():
            kept = kept_of((size for _, size in of), count_share=count_share, bytes_share=bytes_share)
            for artifact_id, _ in of[kept:]:
                heir = min((owner for found, owner in shared if found == artifact_id), default=None)
                if heir is None:
                    del stored[artifact_id]
                else:
                    del shared[artifact_id, heir]
                    stored[artifact_id] = replace(stored[artifact_id], owner=heir)

    async def add_catalog_models(self, entries: Sequence[ModelEntry]) -> None:
        for each in entries:
            self._own("catalog_models").setdefault(each.id, kept(each))

    async def change_catalog_model(
        self, model_id: str, change: Callable[[ModelEntry | None], ModelEntry | None]
    ) -> ModelEntry | None:
        changed = change(self._tables.catalog_models.get(model_id))
        if changed is None:
            self._own("catalog_models").pop(model_id, None)
        else:
            self._own("catalog_models")[model_id] = kept(changed)
        return changed

    async def put_site_usage(self, site: SiteName, usage: Sequence[Usage]) -> None:
        stored = self._own("site_usage")
        for each in usage:
            key = (each.caller, each.day, each.model, site)
            if key not in stored or stored[key].requests < each.requests:
                stored[key] = each

    async def add_usage(self, usage: Sequence[Usage]) -> None:
        stored = self._own("usage")
        for each in usage:
            key = (each.caller, each.day, each.model)
            old = stored.get(key, Usage(*key))
            stored[key] = replace(
                each,
                requests=old.requests + each.requests,
                tokens_in=old.tokens_in + each.tokens_in,
                tokens_out=old.tokens_out + each.tokens_out,
            )

    async def put_pin(self, pin: Pin) -> None:
        self._own("pins")[pin.deployment_id, pin.over] = kept(pin)

    async def drop_pins(self, deployment_ids: Sequence[DeploymentId]) -> None:
        pins = self._own("pins")
        for key in [key for key in pins if key[0] in deployment_ids]:
            del pins[key]

    async def put_holds(self, site: SiteName, holds: Sequence[Hold]) -> None:
        self._own("holds")[site] = [kept(each) for each in holds]

    async def put_desired_files(self, files: Sequence[DesiredFile]) -> None:
        self._own("desired").update({file.deployment_id: file for file in files})

    async def drop_desired_files(self, deployment_ids: Sequence[DeploymentId]) -> None:
        for deployment_id in deployment_ids:
            self._own("desired").pop(deployment_id, None)

    async def enqueue(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        for body in [kept(each) for each in bodies]:
            self._own("outbox").append(Outgoing(self._next("outbox"), body))

    async def dequeue(self, up_to_sequence: int) -> None:
        left = [each for each in self._tables.outbox if each.sequence > up_to_sequence]
        self._own("outbox")[:] = left

    async def drop_outbox(self, after_sequence: int) -> None:
        left = [each for each in self._tables.outbox if each.sequence <= after_sequence]
        self._own("outbox")[:] = left

    async def set_value(self, key: str, value: str) -> None:
        self._own("values")[key] = storable(value)

    async def put_instance_values(self, name: str, values: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
        self._own("instance_values").update({(name, *key): storable(value) for key, value in values.items()})

    async def drop_instance_values(self, name: str, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None:
        for key in keys:
            self._own("instance_values").pop((name, *key), None)


class MemoryStore:
    """Works run one after the other, in the order they came."""

    def __init__(
        self,
        disk: Disk,
        *,
        before: Hook = _nothing,
        after: Hook = _nothing,
        insist_on_space: Callable[[], None] = _there_is_space,
        watch: Callable[[Tables, Tables], None] = _nobody,
    ) -> None:
        """`insist_on_space` raises when what a work has written cannot be kept; `watch` sees the tables before and
        after each commit."""
        self.disk = disk
        self._before = before
        self._after = after
        self._insist_on_space = insist_on_space
        self._watch = watch
        self._turn = anyio.Lock()
        self._moved = anyio.Event()

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._turn:
            await self._before()
            tables = self.disk.tables
            transaction = MemoryTransaction(tables)
            result = await work(transaction)
            assert self.disk.tables is tables, "a work waited for something else than its transaction"
            self._insist_on_space()
            self._keep(transaction.commit())
            await self._after()
        return result

    def _keep(self, tables: Tables) -> None:
        self._watch(self.disk.tables, tables)
        has_moved = tables.counts.get("events", 0) > self.disk.tables.counts.get("events", 0)
        self.disk.tables = tables
        if has_moved:
            moved, self._moved = self._moved, anyio.Event()
            moved.set()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        await anyio.lowlevel.checkpoint()
        yield MemoryReader(self.disk.tables)

    async def wait_for_event(self, after: int) -> int:
        while self.disk.tables.counts.get("events", 0) <= after:
            await self._moved.wait()
        return self.disk.tables.counts.get("events", 0)


def kept(value: T) -> T:
    """As a database gives it back: times in UTC, text that every database can hold, data that went through JSON."""
    return cast(T, _kept(value))


def _kept(value: Any) -> Any:
    kind: type = type(value)
    keep = _keeper(kind)
    return value if keep is None else keep(value)


@cache
def _keeper(kind: type) -> Callable[[Any], Any] | None:
    """How a database keeps values of this type; None where they come back as they are."""
    if kind is str:
        return storable
    if issubclass(kind, datetime):
        return utc
    if issubclass(kind, Mapping):
        return lambda value: from_json(to_json(value))
    if issubclass(kind, tuple):
        return lambda value: tuple(_kept(each) for each in value)
    return partial(_kept_fields, tuple(each.name for each in fields(kind))) if is_dataclass(kind) else None


def _kept_fields(names: tuple[str, ...], value: Any) -> Any:
    changed = {}
    for name in names:
        before = getattr(value, name)
        if (after := _kept(before)) is not before:
            changed[name] = after
    return replace(value, **changed) if changed else value


def _is_next(stored: Versioned | None, row: Versioned) -> bool:
    return stored is not None and stored.version == row.version - 1


def _sorted(rows: Iterable[Deployment]) -> list[Deployment]:
    return sorted(rows, key=lambda row: (row.site, row.name, row.id))
