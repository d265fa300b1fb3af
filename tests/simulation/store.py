"""A store in memory, with explicit durability: what was committed is on the `Disk` and survives its role.

It keeps the promises of `ports.Store` as the databases do (the same conformance suite says so): guarded writes,
snapshots for readers, numbers without gaps, times in UTC and data that went through JSON. Around every commit it
calls its hooks, where a simulation lets roles die.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast

import anyio

from homeport.adapters.store.columns import from_json, storable, to_json, utc
from homeport.core.audit import Ends, Mark, append
from homeport.core.model.access import ApiToken, AuditEntry, NewAudit, SecretRecord
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, NewEvent, Site
from homeport.core.model.identity import IdentityRecord, JoinToken, Standing
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.errors import Conflict
from homeport.ports import (
    AppRecord,
    ComponentRecord,
    DeploymentFilter,
    DesiredFile,
    Outgoing,
    ProfileRecord,
    Reader,
    Transaction,
)
from homeport.vocabulary import AppId, DeploymentId, Digest, NodeId, RolloutId, RolloutState, SiteName

T = TypeVar("T")
Versioned = Deployment | Instance | RolloutRow

Hook = Callable[[], Awaitable[None]]
"""Called around a commit. One that raises ends the write there: before the commit nothing of it is kept."""


async def _nothing() -> None:
    await anyio.lowlevel.checkpoint()


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
    pins: dict[DeploymentId, Pin] = field(default_factory=dict)
    holds: dict[SiteName, list[Hold]] = field(default_factory=dict)
    rollouts: dict[RolloutId, RolloutRow] = field(default_factory=dict)
    desired: dict[DeploymentId, DesiredFile] = field(default_factory=dict)
    outbox: list[Outgoing] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Disk:
    tables: Tables = field(default_factory=Tables)


class MemoryReader:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def apps(
        self, *, category: str | None = None, app_name: str | None = None, version: str | None = None
    ) -> Sequence[AppRecord]:
        wanted = {"category": category, "app_name": app_name, "version": version}
        given = {name: value for name, value in wanted.items() if value is not None}
        found = [
            app
            for app in self._tables.apps.values()
            if all(getattr(app, name) == value for name, value in given.items())
        ]
        return sorted(found, key=lambda app: (app.category, app.app_name, app.version))

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

    async def history(self, deployment_id: DeploymentId) -> Sequence[HistoryEntry]:
        return [each for each in self._tables.history if each.deployment_id == deployment_id]

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        lines = [HistoryLine(number, each) for number, each in enumerate(self._tables.history, 1)]
        found = [each for each in lines if each.id > after and deployment_id in (None, each.entry.deployment_id)]
        return found[:limit]

    async def events(self, *, after: int, limit: int, deployment_id: DeploymentId | None = None) -> Sequence[Event]:
        found = [
            each
            for each in self._tables.events
            if each.id > after and deployment_id in (None, each.event.deployment_id)
        ]
        return found[:limit]

    async def last_event_id(self) -> int:
        return self._tables.counts.get("events", 0)

    async def tokens(self) -> Sequence[ApiToken]:
        return sorted(self._tables.tokens.values(), key=lambda each: each.created_at)

    async def token(self, token_id: str) -> ApiToken | None:
        return self._tables.tokens.get(token_id)

    async def identities(self, standing: Standing | None = None) -> Sequence[IdentityRecord]:
        rows = self._tables.identities
        return [rows[key] for key in sorted(rows) if standing in (None, rows[key].standing)]

    async def identity(self, spiffe_id: str) -> IdentityRecord | None:
        return self._tables.identities.get(spiffe_id)

    async def join_tokens(self) -> Sequence[JoinToken]:
        return sorted(self._tables.join_tokens.values(), key=lambda each: each.created_at)

    async def join_token(self, token_id: str) -> JoinToken | None:
        return self._tables.join_tokens.get(token_id)

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
        found = [
            each
            for each in self._tables.audit
            if each.position > after
            and actor in (None, each.entry.actor)
            and (action is None or f"{each.entry.action}.".startswith(f"{action}."))
            and (since is None or each.entry.at >= since)
        ]
        return found[-limit:] if newest else found[:limit]

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

    async def pins(self) -> Sequence[Pin]:
        return [self._tables.pins[key] for key in sorted(self._tables.pins)]

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        found = [each for name in sorted(self._tables.holds) for each in self._tables.holds[name]]
        found.sort(key=lambda each: (each.site, each.deployment_id or ""))
        return [each for each in found if site in (None, each.site)]

    async def rollouts(
        self, states: Collection[RolloutState] | None = None, *, name: str | None = None
    ) -> Sequence[RolloutRow]:
        found = [
            row
            for row in self._tables.rollouts.values()
            if (states is None or row.state in states) and name in (None, row.name)
        ]
        return sorted(found, key=lambda row: (row.created_at, row.id), reverse=True)

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None:
        return self._tables.rollouts.get(rollout_id)

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


class MemoryTransaction(MemoryReader):
    def __init__(self, tables: Tables) -> None:
        super().__init__(replace(tables))
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

    async def put_rollouts(self, rollouts: Sequence[RolloutRow]) -> None:
        for row in rollouts:
            stored = self._tables.rollouts.get(row.id)
            self._guard(stored is None if row.version == 1 else _is_next(stored, row), "rollouts")
            self._own("rollouts")[row.id] = kept(row)

    def _guard(self, is_right: bool, table: str) -> None:
        if not is_right:
            self._conflict = Conflict(f"Some {table} have changed since they were read.")
            raise self._conflict

    async def set_steps(self, steps: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
        for key, step in steps.items():
            if key in self._tables.instances:
                rows = self._own("instances")
                rows[key] = replace(rows[key], step=storable(step))

    async def drop_instances(self, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None:
        for key in keys:
            self._own("instances").pop(key, None)

    async def append_history(self, entries: Sequence[HistoryEntry]) -> None:
        self._own("history").extend([kept(each) for each in entries])

    async def append_events(self, events: Sequence[NewEvent]) -> None:
        for event in [kept(each) for each in events]:
            self._own("events").append(Event(self._next("events"), event))

    async def trim_events(self, keep: int) -> None:
        del self._own("events")[: -max(keep, 1)]

    async def put_token(self, token: ApiToken) -> None:
        self._own("tokens")[token.id] = kept(token)

    async def put_identity(self, record: IdentityRecord) -> None:
        self._own("identities")[record.spiffe_id] = kept(record)

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

    async def put_pin(self, pin: Pin) -> None:
        self._own("pins")[pin.deployment_id] = kept(pin)

    async def drop_pins(self, deployment_ids: Sequence[DeploymentId]) -> None:
        for deployment_id in deployment_ids:
            self._own("pins").pop(deployment_id, None)

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


class MemoryStore:
    """Works run one after the other, in the order they came."""

    def __init__(
        self,
        disk: Disk,
        *,
        before: Hook = _nothing,
        after: Hook = _nothing,
        watch: Callable[[Tables, Tables], None] = _nobody,
    ) -> None:
        """`watch` sees the tables before and after each commit."""
        self.disk = disk
        self._before = before
        self._after = after
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

    async def wait_for_event(self, after: int) -> None:
        while self.disk.tables.counts.get("events", 0) <= after:
            await self._moved.wait()


def kept(value: T) -> T:
    """As a database gives it back: times in UTC, text that every database can hold, data that went through JSON."""
    return cast(T, _kept(value))


def _kept(value: Any) -> Any:
    if type(value) is str:
        return storable(value)
    if isinstance(value, datetime):
        return utc(value)
    if isinstance(value, Mapping):
        return from_json(to_json(value))
    if isinstance(value, tuple):
        return tuple(_kept(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        before = {name: getattr(value, name) for name in _names(type(value))}
        after = {name: _kept(each) for name, each in before.items()}
        changed = {name: each for name, each in after.items() if each is not before[name]}
        return replace(value, **changed) if changed else value
    return value


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _is_next(stored: Versioned | None, row: Versioned) -> bool:
    return stored is not None and stored.version == row.version - 1


def _sorted(rows: Iterable[Deployment]) -> list[Deployment]:
    return sorted(rows, key=lambda row: (row.site, row.name, row.id))
