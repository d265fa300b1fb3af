"""`ports.Reader` on one connection."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries import aside, log, margo, paging, role_state
from homeport.adapters.store.queries import telemetry as measured
from homeport.adapters.store.queries.fleet import apps, deployments, holds, instances, revisions, rollouts, sites
from homeport.adapters.store.queries.identity import access, identities
from homeport.adapters.store.queries.identity import audit as trail
from homeport.adapters.store.queries.work import catalog_models, inference, jobs, pipelines
from homeport.core.audit.chain import Ends
from homeport.core.inference.models.entries import ModelEntry
from homeport.core.inference.records import StoredArtifact, StoredTask, Usage
from homeport.core.jobs.job import Job
from homeport.core.margo.records import ManifestArtifact, ManifestRecord, MargoDevice, StatusRecord
from homeport.core.model.access import ApiToken, AuditEntry, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, Site, Subject
from homeport.core.model.identity import IdentityRecord, IdentityStatus, JoinToken
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.core.pipelines.model import Definition, ItemKey, ItemResult, Run
from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryKey, TelemetryRow
from homeport.ports import (
    APPS,
    AUDIT,
    DEPLOYMENTS,
    HOLDS,
    IDENTITIES,
    JOBS,
    NODES,
    PIPELINE_RUNS,
    PIPELINES,
    ROLLOUTS,
    SECRETS,
    SITES,
    TOKENS,
    WHOLE,
    AppFilter,
    AppRecord,
    AuditFilter,
    ComponentRecord,
    Counts,
    Cut,
    DeploymentFilter,
    DesiredFile,
    HoldFilter,
    IdentityFilter,
    Item,
    JobReport,
    Listing,
    NodeFilter,
    Outgoing,
    Page,
    ProfileRecord,
    RevisionUser,
    RolloutFilter,
    SecretFilter,
    SetAside,
    SiteFilter,
    TokenFilter,
    Where,
)
from homeport.vocabulary import (
    AppId,
    DeploymentId,
    Digest,
    JobId,
    NodeId,
    RolloutId,
    RolloutState,
    RunId,
    SiteName,
    SubjectKind,
)

T = TypeVar("T")
_SOURCES: Final[Mapping[str, paging.ListSource[Any, Any]]] = {
    APPS.name: apps.SOURCE,
    AUDIT.name: trail.SOURCE,
    DEPLOYMENTS.name: deployments.SOURCE,
    HOLDS.name: holds.SOURCE,
    IDENTITIES.name: identities.SOURCE,
    JOBS.name: jobs.SOURCE,
    NODES.name: sites.NODES,
    PIPELINES.name: pipelines.PIPELINES,
    PIPELINE_RUNS.name: pipelines.RUNS,
    ROLLOUTS.name: rollouts.SOURCE,
    SECRETS.name: access.SECRETS,
    SITES.name: sites.SITES,
    TOKENS.name: access.TOKENS,
}


class SqlReader:
    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection

    def left_out(self, table: str) -> Sequence[tuple[str, ...]]:
        return [key for of, key in self._connection.left_out if of == table]

    async def page(self, listing: Listing[Item, Where], where: Where, cut: Cut) -> Page[Item]:
        return await paging.find_page(self._connection, _SOURCES[listing.name], where, cut)

    async def counts(self, listing: Listing[Any, Where], where: Where, by: Sequence[str] = ()) -> Counts:
        return await paging.find_counts(self._connection, _SOURCES[listing.name], where, by)

    async def _all(self, listing: Listing[Item, Where], where: Where) -> Sequence[Item]:
        return (await self.page(listing, where, WHOLE)).items

    async def apps(
        self, *, category: str | None = None, app_name: str | None = None, version: str | None = None
    ) -> Sequence[AppRecord]:
        return await self._all(APPS, AppFilter(category=category, app_name=app_name, version=version))

    async def app(self, app_id: AppId) -> AppRecord | None:
        return await apps.find_app(self._connection, app_id)

    async def profiles(self, app_id: AppId) -> Sequence[ProfileRecord]:
        return await apps.find_profiles(self._connection, app_id)

    async def components(self, app_id: AppId) -> Sequence[ComponentRecord]:
        return await apps.find_components(self._connection, app_id)

    async def sites(self) -> Sequence[Site]:
        return await self._all(SITES, SiteFilter())

    async def site(self, name: SiteName) -> Site | None:
        return await sites.find_site(self._connection, name)

    async def nodes(self, site: SiteName | None = None) -> Sequence[Node]:
        return await self._all(NODES, NodeFilter(site=site))

    async def heard_longest_ago(self, *, limit: int) -> Sequence[Site]:
        return await sites.find_heard_longest_ago(self._connection, limit)

    async def revision_users(self) -> Sequence[RevisionUser]:
        return await revisions.find_users(self._connection)

    async def peer_protocols(self) -> Sequence[tuple[str, int, int]]:
        return await sites.count_protocols(self._connection)

    async def nodes_called(self, node_id: NodeId) -> Sequence[Node]:
        return await sites.find_nodes_called(self._connection, node_id)

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        return await self._all(HOLDS, HoldFilter(site=site))

    async def deployments(self, where: DeploymentFilter) -> Sequence[Deployment]:
        return await self._all(DEPLOYMENTS, where)

    async def deployment(self, deployment_id: DeploymentId) -> Deployment | None:
        return await deployments.find_deployment(self._connection, deployment_id)

    async def deployments_by_ids(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]:
        return await deployments.find_by_ids(self._connection, deployment_ids)

    async def deployments_by_prefix(self, prefix: str) -> Sequence[Deployment]:
        return await deployments.find_by_prefix(self._connection, prefix)

    async def instances(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Instance]:
        return await instances.find_instances(self._connection, deployment_ids)

    async def rollouts(
        self, states: Collection[RolloutState] | None = None, *, name: str | None = None
    ) -> Sequence[RolloutRow]:
        return await self._all(
            ROLLOUTS, RolloutFilter(states=None if states is None else frozenset(states), name=name)
        )

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None:
        return await rollouts.find_rollout(self._connection, rollout_id)

    async def jobs(self, keys: Sequence[tuple[SiteName, JobId]]) -> Sequence[Job]:
        return await jobs.find_jobs(self._connection, keys)

    async def jobs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Job]:
        return await jobs.find_jobs_called(self._connection, prefix, limit)

    async def job_file(self, job: Job, path: str) -> bytes | None:
        return await jobs.find_file(self._connection, job, path)

    async def job_reports(self, *, after: int, limit: int) -> Sequence[JobReport]:
        return await jobs.find_reports(self._connection, after=after, limit=limit)

    async def pipeline_run(self, run_id: RunId) -> Run | None:
        return await pipelines.find_run(self._connection, run_id)

    async def pipeline_runs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Run]:
        return await pipelines.find_runs_called(self._connection, prefix, limit)

    async def pipeline_results(self, run: Run) -> Mapping[ItemKey, ItemResult]:
        return await pipelines.find_results(self._connection, run.id)

    async def pipeline(self, name: str) -> Definition | None:
        return await pipelines.find_pipeline(self._connection, name)

    async def scheduled_pipelines(self) -> Sequence[Definition]:
        return await pipelines.find_scheduled(self._connection)

    async def history(self, deployment_id: DeploymentId, *, newest: int | None = None) -> Sequence[HistoryEntry]:
        return await log.find_history(self._connection, deployment_id, newest=newest)

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        return await log.find_history_after(self._connection, after, limit=limit, deployment_id=deployment_id)

    async def events(
        self, *, after: int, limit: int, deployment_id: DeploymentId | None = None, subject: Subject | None = None
    ) -> Sequence[Event]:
        return await log.find_events(
            self._connection, after=after, limit=limit, deployment_id=deployment_id, subject=subject
        )

    async def has_event_about(self, kind: SubjectKind, *, after: int) -> bool:
        return await log.has_event_about(self._connection, kind, after=after)

    async def last_event_id(self) -> int:
        return await log.last_event_id(self._connection)

    async def tokens(self) -> Sequence[ApiToken]:
        return await self._all(TOKENS, TokenFilter())

    async def token(self, token_id: str) -> ApiToken | None:
        return await access.find_token(self._connection, token_id)

    async def identities(self, standing: IdentityStatus | None = None) -> Sequence[IdentityRecord]:
        return await self._all(IDENTITIES, IdentityFilter(standing=standing))

    async def identity(self, spiffe_id: str) -> IdentityRecord | None:
        return await identities.find_identity(self._connection, spiffe_id)

    async def join_tokens(self) -> Sequence[JoinToken]:
        return await identities.find_join_tokens(self._connection)

    async def join_token(self, token_id: str) -> JoinToken | None:
        return await identities.find_join_token(self._connection, token_id)

    async def audit(self, *, after: int, limit: int) -> Sequence[AuditEntry]:
        return (await self.page(AUDIT, AuditFilter(), Cut(limit, (after,), "oldest"))).items

    async def audit_ends(self) -> Ends:
        return await trail.find_ends(self._connection)

    async def last_audit(self) -> AuditEntry | None:
        return await trail.find_last_audit(self._connection)

    async def secrets(self, site: SiteName | None = None) -> Sequence[SecretRecord]:
        return await self._all(SECRETS, SecretFilter(site=site))

    async def secret(self, site: SiteName, name: str) -> SecretRecord | None:
        return await access.find_secret(self._connection, site, name)

    async def revisions(self, deployment_id: DeploymentId) -> Sequence[Revision]:
        return await revisions.find_revisions(self._connection, deployment_id)

    async def revisions_of(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Revision]:
        return await revisions.find_revisions_of(self._connection, deployment_ids)

    async def revision_contents(self, wanted: Mapping[DeploymentId, Digest]) -> Mapping[DeploymentId, bytes]:
        return await revisions.find_contents(self._connection, wanted)

    async def task(self, task_id: str) -> StoredTask | None:
        return await inference.find_task(self._connection, task_id)

    async def tasks(self, task_ids: Sequence[str]) -> Sequence[StoredTask]:
        return await inference.find_tasks(self._connection, task_ids)

    async def unfinished_tasks(self) -> Sequence[StoredTask]:
        return await inference.find_unfinished(self._connection)

    async def artifact(self, artifact_id: str) -> StoredArtifact | None:
        return await inference.find_artifact(self._connection, artifact_id)

    async def owns_artifact(self, artifact_id: str, owner: str) -> bool:
        return await inference.owns_artifact(self._connection, artifact_id, owner)

    async def artifacts(self, owner: str | None, *, limit: int) -> Sequence[StoredArtifact]:
        return await inference.find_artifacts(self._connection, owner, limit=limit)

    async def catalog_models(self) -> Sequence[ModelEntry]:
        return await catalog_models.find_models(self._connection)

    async def catalog_model(self, model_id: str) -> ModelEntry | None:
        return await catalog_models.find_model(self._connection, model_id)

    async def count_catalog_models(self) -> int:
        return await catalog_models.count_models(self._connection)

    async def usage(self, since_day: str) -> Sequence[Usage]:
        return await inference.find_usage(self._connection, since_day)

    async def site_usage(self, since_day: str) -> Sequence[tuple[SiteName, Usage]]:
        return await inference.find_site_usage(self._connection, since_day)

    async def count_site_usage(self, site: SiteName) -> int:
        return await inference.count_site_usage(self._connection, site)

    async def set_aside(self, site: SiteName | None = None) -> Sequence[SetAside]:
        return await aside.find_aside(self._connection, site)

    async def versions_kept(self, deployment_ids: Sequence[DeploymentId]) -> Mapping[Digest, str]:
        return await revisions.find_versions(self._connection, deployment_ids)

    async def pins(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Pin]:
        return await revisions.find_pins(self._connection, deployment_ids)

    async def margo_manifests_of(self, sites: Sequence[SiteName]) -> Sequence[ManifestRecord]:
        return await margo.find_manifests(self._connection, sites)

    async def margo_artifact(self, site: SiteName, digest: Digest) -> ManifestArtifact | None:
        return await margo.find_artifact(self._connection, site, digest)

    async def margo_devices(self, site: SiteName) -> Sequence[MargoDevice]:
        return await margo.find_devices(self._connection, site)

    async def margo_device_ids(self, site: SiteName, among: Sequence[str] | None = None) -> Sequence[str]:
        return await margo.find_device_ids(self._connection, site, among)

    async def margo_device_counts(self) -> Mapping[SiteName, int]:
        return await margo.count_devices(self._connection)

    async def margo_devices_of(self, sites: Sequence[SiteName]) -> Sequence[MargoDevice]:
        return await margo.find_devices_of(self._connection, sites)

    async def margo_statuses(
        self, site: SiteName, deployment_id: DeploymentId | None = None
    ) -> Sequence[StatusRecord]:
        return await margo.find_statuses(self._connection, site, deployment_id)

    async def desired_files(self) -> Sequence[DesiredFile]:
        return await role_state.find_desired_files(self._connection)

    async def outbox(self, *, limit: int, after: int = 0) -> Sequence[Outgoing]:
        return await role_state.find_outbox(self._connection, limit=limit, after=after)

    async def outbox_size(self) -> int:
        return await role_state.outbox_size(self._connection)

    async def outbox_bytes(self) -> int:
        return await role_state.outbox_bytes(self._connection)

    async def outbox_left(self) -> int:
        return await role_state.outbox_left(self._connection)

    async def value(self, key: str) -> str | None:
        return await role_state.find_value(self._connection, key)

    async def value_as(self, key: str, parse: Callable[[str], T]) -> T | None:
        return await role_state.find_value_as(self._connection, key, parse)

    async def instance_values(self, name: str, parse: Callable[[str], T]) -> Mapping[tuple[DeploymentId, NodeId], T]:
        return await role_state.find_instance_values(self._connection, name, parse)

    async def values(self, keys: Sequence[str]) -> Mapping[str, str]:
        return await role_state.find_values(self._connection, keys)

    async def telemetry(
        self, site: SiteName, node_id: NodeId, resolution_seconds: int, *, start: datetime, end: datetime
    ) -> Sequence[TelemetryRow]:
        return await measured.find_rows(self._connection, site, node_id, resolution_seconds, start=start, end=end)

    async def telemetry_keys(
        self, site: SiteName, resolution_seconds: int, *, start: datetime
    ) -> Sequence[TelemetryKey]:
        return await measured.find_keys(self._connection, site, resolution_seconds, start=start)

    async def heartbeats(
        self, site: SiteName, node_id: NodeId, *, start: datetime, end: datetime, limit: int
    ) -> Sequence[Interval]:
        return await measured.find_intervals(self._connection, site, node_id, start=start, end=end, limit=limit)

    async def open_heartbeats(self, site: SiteName) -> Sequence[Interval]:
        return await measured.find_open_intervals(self._connection, site)
