"""`ports.Transaction`: what one work of a group commit may do.

Rows for the logs are handed to `Appends` and reach the database with everybody else's, unless the work asks for
them itself. Anything else first sets a savepoint, so that a work which fails is taken back alone.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Table

from homeport.adapters.store import access, apps, identities, log, role, schema, sites, trail
from homeport.adapters.store import deployments as stored_deployments
from homeport.adapters.store import holds as stored_holds
from homeport.adapters.store import instances as stored_instances
from homeport.adapters.store import revisions as stored_revisions
from homeport.adapters.store import rollouts as stored_rollouts
from homeport.adapters.store.appends import Appends
from homeport.adapters.store.border import Connection
from homeport.adapters.store.reader import SqlReader
from homeport.core.model.access import ApiToken, NewAudit, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, NewEvent, Site
from homeport.core.model.identity import IdentityRecord, JoinToken
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.errors import Conflict
from homeport.ports import AppRecord, ComponentRecord, DesiredFile, Outgoing, ProfileRecord
from homeport.vocabulary import AppId, DeploymentId, NodeId, SiteName


class Savepoint:
    """The one savepoint of a group commit, set anew for each work that writes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_set = False

    async def set(self) -> None:
        # Releasing the previous work's here, and not when it ended, spares a round trip.
        release = ("RELEASE SAVEPOINT work",) if self._is_set else ()
        await self._connection.command(*release, "SAVEPOINT work")
        self._is_set = True

    async def return_to(self) -> None:
        await self._connection.command("ROLLBACK TO SAVEPOINT work")


class SqlTransaction(SqlReader):
    """Without a savepoint, the work is alone in its transaction."""

    def __init__(self, connection: Connection, appends: Appends, savepoint: Savepoint | None) -> None:
        super().__init__(connection)
        self._appends = appends
        self._mark = appends.mark()
        self._savepoint = savepoint
        self._has_written = False
        self._conflict: Conflict | None = None

    # --- for the group commit -------------------------------------------------------------------------------

    def keep(self) -> None:
        """The work has ended well. A conflict that it has swallowed still takes everything back."""
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

    async def drop_instances(self, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None:
        await stored_instances.drop_instances(await self._writable(), keys)

    async def put_rollouts(self, rollouts: Sequence[RolloutRow]) -> None:
        try:
            await stored_rollouts.put_rollouts(await self._writable(), rollouts)
        except Conflict as conflict:
            self._conflict = conflict
            raise

    # --- what happened --------------------------------------------------------------------------------------

    async def append_history(self, entries: Sequence[HistoryEntry]) -> None:
        self._appends.add(schema.history, map(log.history_row, entries))

    async def append_events(self, events: Sequence[NewEvent]) -> None:
        self._appends.add(schema.events, map(log.event_row, events))

    async def trim_events(self, keep: int) -> None:
        await log.trim_events(await self._with_all(schema.events, writable=True), keep)

    async def history(self, deployment_id: DeploymentId) -> Sequence[HistoryEntry]:
        return await log.find_history(await self._with_all(schema.history), deployment_id)

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        connection = await self._with_all(schema.history)
        return await log.find_history_after(connection, after, limit=limit, deployment_id=deployment_id)

    async def events(self, *, after: int, limit: int, deployment_id: DeploymentId | None = None) -> Sequence[Event]:
        connection = await self._with_all(schema.events)
        return await log.find_events(connection, after=after, limit=limit, deployment_id=deployment_id)

    async def last_event_id(self) -> int:
        return self._appends.counts[schema.events]

    # --- a role's own ---------------------------------------------------------------------------------------

    async def put_token(self, token: ApiToken) -> None:
        await access.put_token(await self._writable(), token)

    async def put_identity(self, record: IdentityRecord) -> None:
        await identities.put_identity(await self._writable(), record)

    async def put_join_token(self, token: JoinToken) -> None:
        await identities.put_join_token(await self._writable(), token)

    async def use_join_token(self, token_id: str, *, by: str, at: datetime) -> bool:
        return await identities.use_join_token(await self._writable(), token_id, by=by, at=at)

    async def append_audit(self, entries: Sequence[NewAudit]) -> None:
        await trail.append_audit(await self._writable(), entries)

    async def trim_audit(self, before: datetime) -> None:
        await trail.trim_audit(await self._writable(), before)

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

    async def put_desired_files(self, files: Sequence[DesiredFile]) -> None:
        await role.put_desired_files(await self._writable(), files)

    async def drop_desired_files(self, deployment_ids: Sequence[DeploymentId]) -> None:
        await role.drop_desired_files(await self._writable(), deployment_ids)

    async def enqueue(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        self._appends.add(schema.outbox, map(role.outbox_row, bodies))

    async def dequeue(self, up_to_sequence: int) -> None:
        await role.dequeue(await self._with_all(schema.outbox, writable=True), up_to_sequence)

    async def drop_outbox(self, after_sequence: int) -> None:
        await role.drop_outbox(await self._with_all(schema.outbox, writable=True), after_sequence)

    async def outbox(self, *, limit: int, after: int = 0) -> Sequence[Outgoing]:
        return await role.find_outbox(await self._with_all(schema.outbox), limit=limit, after=after)

    async def outbox_size(self) -> int:
        return await role.outbox_size(await self._with_all(schema.outbox))

    async def outbox_bytes(self) -> int:
        return await role.outbox_bytes(await self._with_all(schema.outbox))

    async def outbox_left(self) -> int:
        return await role.outbox_left(await self._with_all(schema.outbox))

    async def set_value(self, key: str, value: str) -> None:
        await role.set_value(await self._writable(), key, value)

    # --- savepoint and tails --------------------------------------------------------------------------------

    async def _writable(self) -> Connection:
        if not self._has_written and self._savepoint is not None:
            await self._savepoint.set()
        self._has_written = True
        return self._connection

    async def _with_all(self, table: Table, *, writable: bool = False) -> Connection:
        """The connection, once it can see every row that was appended to `table`."""
        if writable or not self._appends.is_written(table):
            await self._appends.write(await self._writable(), table)
        return self._connection
