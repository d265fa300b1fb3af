"""`ports.Transaction`: the interface of one work in a group commit.

Rows for the logs are handed to `Appends` and written with those of the other works, unless the work reads them
itself. Any other write first sets a savepoint, so that a failed work is rolled back alone.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Table

from homeport.adapters.store import schema
from homeport.adapters.store.commit.appends import Appends
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries import aside, log, margo, role_state
from homeport.adapters.store.queries import telemetry as measured
from homeport.adapters.store.queries.fleet import apps, sites
from homeport.adapters.store.queries.fleet import deployments as stored_deployments
from homeport.adapters.store.queries.fleet import holds as stored_holds
from homeport.adapters.store.queries.fleet import instances as stored_instances
from homeport.adapters.store.queries.fleet import revisions as stored_revisions
from homeport.adapters.store.queries.fleet import rollouts as stored_rollouts
from homeport.adapters.store.queries.identity import access, audit, identities
from homeport.adapters.store.queries.work import catalog_models, inference
from homeport.adapters.store.queries.work import jobs as stored_jobs
from homeport.adapters.store.queries.work import pipelines as stored_pipelines
from homeport.adapters.store.reader import SqlReader
from homeport.core.inference.models.entries import ModelEntry
from homeport.core.inference.records import StoredArtifact, StoredTask, Usage
from homeport.core.jobs.job import Job, JobFile
from homeport.core.margo.records import ManifestArtifact, ManifestRecord, MargoDevice, StatusRecord
from homeport.core.model.access import ApiToken, NewAudit, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, NewEvent, Site, Subject
from homeport.core.model.identity import IdentityRecord, JoinToken
from homeport.core.model.instance import Instance, Unhealthy
from homeport.core.model.lease import Lease
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.core.pipelines.model import Definition, ItemKey, ItemResult, Run
from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryRow
from homeport.errors import Conflict
from homeport.ports import AppRecord, ComponentRecord, DesiredFile, JobReport, Outgoing, ProfileRecord, SetAside
from homeport.vocabulary import AppId, DeploymentId, LogStream, NodeId, RunId, SiteName, SubjectKind


class Savepoint:
    """The one savepoint of a group commit, set again for each work that writes."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._is_set = False

    async def set(self) -> None:
        # Releasing the previous work's savepoint here, and not when it ended, saves a round trip.
        release = ("RELEASE SAVEPOINT work",) if self._is_set else ()
        await self._connection.command(*release, "SAVEPOINT work")
        self._is_set = True

    async def return_to(self) -> None:
        await self._connection.command("ROLLBACK TO SAVEPOINT work")


class SqlTransaction(SqlReader):
    """Without a savepoint, the work is alone in its transaction."""

    def __init__(self, connection: SqlConnection, appends: Appends, savepoint: Savepoint | None) -> None:
        super().__init__(connection)
        self._appends = appends
        self._mark = appends.mark()
        self._savepoint = savepoint
        self._has_written = False
        self._conflict: Conflict | None = None

    # --- for the group commit -------------------------------------------------------------------------------

    def keep(self) -> None:
        """The work has succeeded. A conflict that it has swallowed still rolls everything back."""
        if self._conflict is not None:
            raise self._conflict

    async def take_back(self) -> None:
        if self._has_written and self._savepoint is not None:
            await self._savepoint.return_to()
        self._appends.restore(self._mark)

    # --- catalog --------------------------------------------------------------------------------------------

    async def add_app(
        self, app: AppRecord, profiles: Sequence[ProfileRecord], components: Sequence[ComponentRecord]
    ) -> None:
        await apps.add_app(await self._writable(), app, profiles, components)

    async def remove_app(self, app_id: AppId) -> None:
        await apps.remove_app(await self._writable(), app_id)

    # --- fleet ----------------------------------------------------------------------------------------------

    async def put_site(self, site: Site) -> None:
        await sites.put_site(await self._writable(), site)

    async def remove_site(self, name: SiteName) -> None:
        await sites.remove_site(await self._writable(), name)

    async def touch_sites(self, names: Sequence[SiteName], at: datetime) -> None:
        await sites.touch_sites(await self._writable(), names, at)

    async def put_node(self, node: Node) -> None:
        await sites.put_node(await self._writable(), node)

    async def touch_nodes(self, site: SiteName, seen: Mapping[NodeId, datetime]) -> None:
        await sites.touch_nodes(await self._writable(), site, seen)

    async def remove_node(self, site: SiteName, node_id: NodeId) -> None:
        await sites.remove_node(await self._writable(), site, node_id)

    async def put_holds(self, site: SiteName, holds: Sequence[Hold]) -> None:
        await stored_holds.put_holds(await self._writable(), site, holds)

    async def put_deployments(self, deployments: Sequence[Deployment]) -> None:
        try:
            await stored_deployments.put_deployments(await self._writable(), deployments)
        except Conflict as conflict:
            self._conflict = conflict
            raise

    async def put_instances(self, instances: Sequence[Instance]) -> None:
        try:
            await stored_instances.put_instances(await self._writable(), instances)
        except Conflict as conflict:
            self._conflict = conflict
            raise

    async def set_steps(self, steps: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
        await stored_instances.set_steps(await self._writable(), steps)

    async def set_health(self, observed: Mapping[tuple[DeploymentId, NodeId], Unhealthy | None]) -> None:
        await stored_instances.set_health(await self._writable(), observed)

    async def drop_instances(self, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None:
        await stored_instances.drop_instances(await self._writable(), keys)

    async def put_rollouts(self, rollouts: Sequence[RolloutRow]) -> None:
        try:
            await stored_rollouts.put_rollouts(await self._writable(), rollouts)
        except Conflict as conflict:
            self._conflict = conflict
            raise

    async def put_jobs(self, jobs: Sequence[Job]) -> None:
        try:
            await stored_jobs.put_jobs(await self._writable(), jobs)
        except Conflict as conflict:
            self._conflict = conflict
            raise

    async def put_job_files(self, job: Job, files: Sequence[JobFile]) -> None:
        await stored_jobs.put_files(await self._writable(), job, files)

    async def trim_jobs(self, *, keep: int, before: datetime) -> int:
        return await stored_jobs.trim_jobs(await self._writable(), keep=keep, before=before)

    async def add_job_reports(self, reports: Sequence[JobReport]) -> None:
        await stored_jobs.add_reports(await self._writable(), reports)

    async def drop_job_reports(self, up_to_position: int) -> None:
        await stored_jobs.drop_reports(await self._writable(), up_to_position)

    async def put_pipeline_runs(self, runs: Sequence[Run]) -> None:
        try:
            await stored_pipelines.put_runs(await self._writable(), runs)
        except Conflict as conflict:
            self._conflict = conflict
            raise

    async def put_pipeline_results(self, run_id: RunId, results: Mapping[ItemKey, ItemResult]) -> None:
        await stored_pipelines.put_results(await self._writable(), run_id, results)

    async def trim_pipeline_runs(self, *, keep: int, before: datetime) -> int:
        return await stored_pipelines.trim_runs(await self._writable(), keep=keep, before=before)

    async def put_pipelines(self, definitions: Sequence[Definition]) -> None:
        try:
            await stored_pipelines.put_pipelines(await self._writable(), definitions)
        except Conflict as conflict:
            self._conflict = conflict
            raise

    async def set_pipeline_due(self, definition: Definition, next_at: datetime | None) -> None:
        await stored_pipelines.set_due(await self._writable(), definition, next_at)

    async def remove_pipeline(self, name: str) -> None:
        await stored_pipelines.remove_pipeline(await self._writable(), name)

    # --- what happened --------------------------------------------------------------------------------------

    async def append_history(self, entries: Sequence[HistoryEntry]) -> None:
        self._appends.add(schema.history, map(log.history_row, entries))

    async def append_events(self, events: Sequence[NewEvent]) -> None:
        self._appends.add(schema.events, map(log.event_row, events))

    async def trim_events(self, stream: LogStream, *, keep: int, before: datetime | None = None) -> None:
        connection = await self._with_all(schema.events, writable=True)
        await log.trim_events(connection, stream, keep=keep, before=before)

    async def history(self, deployment_id: DeploymentId, *, newest: int | None = None) -> Sequence[HistoryEntry]:
        return await log.find_history(await self._with_all(schema.history), deployment_id, newest=newest)

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        connection = await self._with_all(schema.history)
        return await log.find_history_after(connection, after, limit=limit, deployment_id=deployment_id)

    async def events(
        self, *, after: int, limit: int, deployment_id: DeploymentId | None = None, subject: Subject | None = None
    ) -> Sequence[Event]:
        connection = await self._with_all(schema.events)
        return await log.find_events(
            connection, after=after, limit=limit, deployment_id=deployment_id, subject=subject
        )

    async def has_event_about(self, kind: SubjectKind, *, after: int) -> bool:
        return await log.has_event_about(await self._with_all(schema.events), kind, after=after)

    async def last_event_id(self) -> int:
        return self._appends.counts[schema.events]

    # --- a role's own ---------------------------------------------------------------------------------------

    async def put_token(self, token: ApiToken) -> None:
        await access.put_token(await self._writable(), token)

    async def lease(self, name: str) -> Lease | None:
        return await role_state.find_lease(self._connection, name)

    async def put_identity(self, record: IdentityRecord) -> None:
        await identities.put_identity(await self._writable(), record)

    async def drop_identities(self, spiffe_ids: Sequence[str]) -> None:
        await identities.drop_identities(await self._writable(), spiffe_ids)

    async def put_join_token(self, token: JoinToken) -> None:
        await identities.put_join_token(await self._writable(), token)

    async def use_join_token(self, token_id: str, *, by: str, at: datetime) -> bool:
        return await identities.use_join_token(await self._writable(), token_id, by=by, at=at)

    async def append_audit(self, entries: Sequence[NewAudit]) -> None:
        await audit.append_audit(await self._writable(), entries)

    async def trim_audit(self, before: datetime) -> None:
        await audit.trim_audit(await self._writable(), before)

    async def margo_manifests_of(self, sites: Sequence[SiteName]) -> Sequence[ManifestRecord]:
        return await margo.find_manifests(self._connection, sites, for_update=True)

    async def put_margo_manifests(self, records: Sequence[ManifestRecord]) -> None:
        await margo.put_manifests(await self._writable(), records)

    async def put_margo_artifacts(self, artifacts: Sequence[ManifestArtifact]) -> None:
        await margo.put_artifacts(await self._writable(), artifacts)

    async def drop_margo_artifacts(self, before: Mapping[SiteName, int]) -> None:
        await margo.drop_artifacts(await self._writable(), before)

    async def put_margo_device(self, device: MargoDevice) -> None:
        await margo.put_device(await self._writable(), device)

    async def drop_margo_devices(self, site: SiteName, ids: Sequence[str]) -> None:
        await margo.drop_devices(await self._writable(), site, ids)

    async def put_margo_status(self, status: StatusRecord) -> None:
        await margo.put_status(await self._writable(), status)

    async def drop_margo_client(self, site: SiteName) -> None:
        await margo.drop_client(await self._writable(), site)

    async def put_secret(self, secret: SecretRecord) -> None:
        await access.put_secret(await self._writable(), secret)

    async def remove_secret(self, site: SiteName, name: str) -> None:
        await access.remove_secret(await self._writable(), site, name)

    async def put_revisions(self, revisions: Sequence[Revision], *, keep: int) -> None:
        await stored_revisions.put_revisions(await self._writable(), revisions, keep=keep)

    async def drop_revisions(self, deployment_ids: Sequence[DeploymentId]) -> None:
        await stored_revisions.drop_revisions(await self._writable(), deployment_ids)

    async def put_pin(self, pin: Pin) -> None:
        await stored_revisions.put_pin(await self._writable(), pin)

    async def drop_pins(self, deployment_ids: Sequence[DeploymentId]) -> None:
        await stored_revisions.drop_pins(await self._writable(), deployment_ids)

    async def add_tasks(self, tasks: Sequence[StoredTask]) -> Sequence[StoredTask]:
        return await inference.add_tasks(await self._writable(), tasks)

    async def put_tasks(self, tasks: Sequence[StoredTask]) -> None:
        await inference.put_tasks(await self._writable(), tasks)

    async def start_tasks(self, task_ids: Sequence[str]) -> None:
        await inference.start_tasks(await self._writable(), task_ids)

    async def trim_tasks(self, *, keep: int) -> None:
        await inference.trim_tasks(await self._writable(), keep)

    async def put_artifacts(self, artifacts: Sequence[StoredArtifact]) -> None:
        await inference.put_artifacts(await self._writable(), artifacts)

    async def share_artifacts(self, artifacts: Sequence[StoredArtifact]) -> None:
        await inference.share_artifacts(await self._writable(), artifacts)

    async def trim_artifacts(self, *, keep: int, bytes_max: int) -> None:
        await inference.trim_artifacts(await self._writable(), keep, bytes_max)

    async def add_catalog_models(self, entries: Sequence[ModelEntry]) -> None:
        await catalog_models.add_models(await self._writable(), entries)

    async def change_catalog_model(
        self, model_id: str, change: Callable[[ModelEntry | None], ModelEntry | None]
    ) -> ModelEntry | None:
        return await catalog_models.change_model(await self._writable(), model_id, change)

    async def add_usage(self, usage: Sequence[Usage]) -> None:
        await inference.add_usage(await self._writable(), usage)

    async def put_site_usage(self, site: SiteName, usage: Sequence[Usage]) -> None:
        await inference.put_site_usage(await self._writable(), site, usage)

    async def put_aside(self, reports: Sequence[SetAside]) -> None:
        await aside.put_aside(await self._writable(), reports)

    async def drop_aside(self, reports: Sequence[SetAside]) -> None:
        await aside.drop_aside(await self._writable(), reports)

    async def put_desired_files(self, files: Sequence[DesiredFile]) -> None:
        await role_state.put_desired_files(await self._writable(), files)

    async def drop_desired_files(self, deployment_ids: Sequence[DeploymentId]) -> None:
        await role_state.drop_desired_files(await self._writable(), deployment_ids)

    async def enqueue(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        self._appends.add(schema.outbox, map(role_state.outbox_row, bodies))

    async def dequeue(self, up_to_sequence: int) -> None:
        await role_state.dequeue(await self._with_all(schema.outbox, writable=True), up_to_sequence)

    async def drop_outbox(self, after_sequence: int) -> None:
        await role_state.drop_outbox(await self._with_all(schema.outbox, writable=True), after_sequence)

    async def outbox(self, *, limit: int, after: int = 0) -> Sequence[Outgoing]:
        return await role_state.find_outbox(await self._with_all(schema.outbox), limit=limit, after=after)

    async def outbox_size(self) -> int:
        return await role_state.outbox_size(await self._with_all(schema.outbox))

    async def outbox_bytes(self) -> int:
        return await role_state.outbox_bytes(await self._with_all(schema.outbox))

    async def outbox_left(self) -> int:
        return await role_state.outbox_left(await self._with_all(schema.outbox))

    async def set_value(self, key: str, value: str) -> None:
        await role_state.set_value(await self._writable(), key, value)

    async def put_instance_values(self, name: str, values: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
        await role_state.put_instance_values(await self._writable(), name, values)

    async def drop_instance_values(self, name: str, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None:
        await role_state.drop_instance_values(await self._writable(), name, keys)

    # --- measurements ---------------------------------------------------------------------------------------

    async def put_telemetry(self, rows: Sequence[TelemetryRow]) -> None:
        await measured.put_rows(await self._writable(), rows)

    async def trim_telemetry(self, resolution_seconds: int, *, before: datetime, bytes_max: int) -> tuple[int, int]:
        return await measured.trim_rows(
            await self._writable(), resolution_seconds, before=before, bytes_max=bytes_max
        )

    async def put_heartbeats(self, site: SiteName, intervals: Sequence[Interval]) -> None:
        await measured.put_intervals(await self._writable(), site, intervals)

    async def trim_heartbeats(self, *, before: datetime) -> None:
        await measured.trim_intervals(await self._writable(), before=before)

    # --- savepoint and tails --------------------------------------------------------------------------------

    async def _writable(self) -> SqlConnection:
        if not self._has_written and self._savepoint is not None:
            await self._savepoint.set()
        self._has_written = True
        return self._connection

    async def _with_all(self, table: Table, *, writable: bool = False) -> SqlConnection:
        """The connection, once all rows appended to `table` are written to it."""
        if writable or not self._appends.is_written(table):
            await self._appends.write(await self._writable(), table)
        return self._connection
