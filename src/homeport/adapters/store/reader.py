"""`ports.Reader` on one connection."""

from collections.abc import Collection, Sequence
from datetime import datetime

from homeport.adapters.store import (
    access,
    apps,
    deployments,
    holds,
    identities,
    instances,
    log,
    revisions,
    role,
    rollouts,
    sites,
    trail,
)
from homeport.adapters.store.border import Connection
from homeport.core.audit import Ends
from homeport.core.model.access import ApiToken, AuditEntry, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, Site
from homeport.core.model.identity import IdentityRecord, JoinToken, Standing
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.ports import AppRecord, ComponentRecord, DeploymentFilter, DesiredFile, Outgoing, ProfileRecord
from homeport.vocabulary import AppId, DeploymentId, NodeId, RolloutId, RolloutState, SiteName


class SqlReader:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def apps(
        self, *, category: str | None = None, app_name: str | None = None, version: str | None = None
    ) -> Sequence[AppRecord]:
        return await apps.find_apps(self._connection, category=category, app_name=app_name, version=version)

    async def app(self, app_id: AppId) -> AppRecord | None:
        return await apps.find_app(self._connection, app_id)

    async def profiles(self, app_id: AppId) -> Sequence[ProfileRecord]:
        return await apps.find_profiles(self._connection, app_id)

    async def components(self, app_id: AppId) -> Sequence[ComponentRecord]:
        return await apps.find_components(self._connection, app_id)

    async def sites(self) -> Sequence[Site]:
        return await sites.find_sites(self._connection)

    async def site(self, name: SiteName) -> Site | None:
        return await sites.find_site(self._connection, name)

    async def nodes(self, site: SiteName | None = None) -> Sequence[Node]:
        return await sites.find_nodes(self._connection, site)

    async def nodes_called(self, node_id: NodeId) -> Sequence[Node]:
        return await sites.find_nodes_called(self._connection, node_id)

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        return await holds.find_holds(self._connection, site)

    async def deployments(self, where: DeploymentFilter) -> Sequence[Deployment]:
        return await deployments.find_deployments(self._connection, where)

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
        return await rollouts.find_rollouts(self._connection, states, name)

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None:
        return await rollouts.find_rollout(self._connection, rollout_id)

    async def history(self, deployment_id: DeploymentId) -> Sequence[HistoryEntry]:
        return await log.find_history(self._connection, deployment_id)

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        return await log.find_history_after(self._connection, after, limit=limit, deployment_id=deployment_id)

    async def events(self, *, after: int, limit: int, deployment_id: DeploymentId | None = None) -> Sequence[Event]:
        return await log.find_events(self._connection, after=after, limit=limit, deployment_id=deployment_id)

    async def last_event_id(self) -> int:
        return await log.last_event_id(self._connection)

    async def tokens(self) -> Sequence[ApiToken]:
        return await access.find_tokens(self._connection)

    async def token(self, token_id: str) -> ApiToken | None:
        return await access.find_token(self._connection, token_id)

    async def identities(self, standing: Standing | None = None) -> Sequence[IdentityRecord]:
        return await identities.find_identities(self._connection, standing)

    async def identity(self, spiffe_id: str) -> IdentityRecord | None:
        return await identities.find_identity(self._connection, spiffe_id)

    async def join_tokens(self) -> Sequence[JoinToken]:
        return await identities.find_join_tokens(self._connection)

    async def join_token(self, token_id: str) -> JoinToken | None:
        return await identities.find_join_token(self._connection, token_id)

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
        return await trail.find_audit(
            self._connection, after=after, limit=limit, actor=actor, action=action, since=since, newest=newest
        )

    async def audit_ends(self) -> Ends:
        return await trail.find_ends(self._connection)

    async def last_audit(self) -> AuditEntry | None:
        return await trail.find_last_audit(self._connection)

    async def secrets(self, site: SiteName | None = None) -> Sequence[SecretRecord]:
        return await access.find_secrets(self._connection, site)

    async def secret(self, site: SiteName, name: str) -> SecretRecord | None:
        return await access.find_secret(self._connection, site, name)

    async def revisions(self, deployment_id: DeploymentId) -> Sequence[Revision]:
        return await revisions.find_revisions(self._connection, deployment_id)

    async def pins(self) -> Sequence[Pin]:
        return await revisions.find_pins(self._connection)

    async def desired_files(self) -> Sequence[DesiredFile]:
        return await role.find_desired_files(self._connection)

    async def outbox(self, *, limit: int, after: int = 0) -> Sequence[Outgoing]:
        return await role.find_outbox(self._connection, limit=limit, after=after)

    async def outbox_size(self) -> int:
        return await role.outbox_size(self._connection)

    async def outbox_bytes(self) -> int:
        return await role.outbox_bytes(self._connection)

    async def outbox_left(self) -> int:
        return await role.outbox_left(self._connection)

    async def value(self, key: str) -> str | None:
        return await role.find_value(self._connection, key)
