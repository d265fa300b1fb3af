"""Sites and their nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, case, delete, exists, func, or_, select, true, update

from homeport.adapters.store import schema
from homeport.adapters.store.columns import labels_from_json, object_from_json, to_json
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import (
    Conditions,
    ListSource,
    SortOrder,
    at_sites,
    containing,
    labelled,
    labelled_as,
    like,
    matching,
)
from homeport.adapters.store.rows import record, records
from homeport.core.model.event import Site
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo, Tunable
from homeport.core.model.protocol import FIRST, PeerProtocol
from homeport.core.values.filters import DRAINED, TEXT, matches
from homeport.core.values.stored import strings_of
from homeport.ports import NodeFilter, ReachWindow, SiteFilter
from homeport.vocabulary import Liveness, NodeId, ProfileType, SiteName, State

_SITES = schema.sites.c
_NODES = schema.nodes.c
_DEPLOYMENTS = schema.deployments.c
_INSTANCES = schema.instances.c


async def find_site(connection: SqlConnection, name: SiteName) -> Site | None:
    return await record(connection, select(schema.sites).where(_SITES.name == name), _site, schema.sites)


async def find_heard_longest_ago(connection: SqlConnection, limit: int) -> Sequence[Site]:
    is_open = (_SITES.silent_since.is_(None), _SITES.last_seen.is_not(None))
    query = select(schema.sites).where(*is_open).order_by(_SITES.last_seen, _SITES.name).limit(limit)
    return await records(connection, query, _site, schema.sites)


async def put_site(connection: SqlConnection, site: Site) -> None:
    await connection.run(
        insert_or_update(connection, schema.sites),
        {
            "name": site.name,
            "joined_at": site.joined_at,
            "last_seen": site.last_seen,
            "applied_commit": site.applied_commit,
            "problem": site.problem,
            "software_version": site.software_version,
            "labels": to_json(site.labels),
            "silent_since": site.silent_since,
            **_protocol_columns(site.protocol),
        },
    )


async def remove_site(connection: SqlConnection, name: SiteName) -> None:
    await connection.run(delete(schema.sites).where(_SITES.name == name))


async def find_nodes_called(connection: SqlConnection, node_id: NodeId) -> Sequence[Node]:
    query = select(schema.nodes).where(_NODES.id == node_id).order_by(_NODES.site)
    return await records(connection, query, _node, schema.nodes)


async def count_protocols(connection: SqlConnection) -> Sequence[tuple[str, int, int]]:
    """Role, protocol version and count; peers that sent no version count as the first."""
    found = []
    for role, table in (("site", schema.sites), ("node", schema.nodes)):
        protocol = func.coalesce(table.c.protocol, FIRST)
        query = select(protocol.label("version"), func.count().label("peers")).group_by(protocol).order_by(protocol)
        rows = await connection.rows(query)
        found += [(role, row.version, int(row.peers)) for row in rows if type(row.version) is int]
    return found


async def put_node(connection: SqlConnection, node: Node) -> None:
    await connection.run(
        insert_or_update(connection, schema.nodes),
        {
            "id": node.info.id,
            "site": node.site,
            "hostname": node.info.hostname,
            "capabilities": to_json(asdict(node.info.capabilities)),
            "labels": to_json(node.info.labels),
            "software_version": node.info.software_version,
            "liveness": node.liveness.value,
            "last_seen": node.last_seen,
            "registered_at": node.registered_at,
            "drain": node.drain,
            "problem": node.problem,
            "tunable": to_json(asdict(node.tunable)),
            "agent_address": node.info.agent_address,
            **_protocol_columns(node.info.protocol),
        },
    )


async def touch_sites(connection: SqlConnection, names: Sequence[SiteName], at: datetime) -> None:
    """Sites that are in contact now."""
    for piece in pieces(names):
        await connection.run(
            update(schema.sites).where(_SITES.name.in_(piece)).values(last_seen=at, silent_since=None)
        )


async def touch_nodes(connection: SqlConnection, site: SiteName, seen: Mapping[NodeId, datetime]) -> None:
    """Time only goes forward: a time older than the stored one is ignored."""
    if not seen:
        return
    statement = (
        update(schema.nodes)
        .where(
            _NODES.site == site,
            _NODES.id == bindparam("seen_id"),
            _NODES.last_seen < bindparam("seen_at", type_=_NODES.last_seen.type),
        )
        .values(last_seen=bindparam("seen_at", type_=_NODES.last_seen.type))
    )
    await connection.run(statement, [{"seen_id": node, "seen_at": at} for node, at in seen.items()])


async def remove_node(connection: SqlConnection, site: SiteName, node_id: NodeId) -> None:
    await connection.run(delete(schema.nodes).where(_NODES.site == site, _NODES.id == node_id))


def _site(row: Row[Any]) -> Site:
    columns = {name: value for name, value in row._mapping.items() if name != "features"}
    return Site(**{**columns, "labels": labels_from_json(row.labels or "{}"), "protocol": _protocol(row)})


def _node(row: Row[Any]) -> Node:
    info = NodeInfo(
        id=row.id,
        hostname=row.hostname,
        capabilities=_capabilities(object_from_json(row.capabilities)),
        labels=labels_from_json(row.labels),
        software_version=row.software_version,
        protocol=_protocol(row),
        agent_address=row.agent_address or "",
    )
    return Node(
        info=info,
        site=row.site,
        liveness=Liveness(row.liveness),
        last_seen=row.last_seen,
        registered_at=row.registered_at,
        drain=row.drain,
        problem=row.problem,
        tunable=Tunable(**object_from_json(row.tunable)) if row.tunable else Tunable(),
    )


def _protocol_columns(protocol: PeerProtocol) -> dict[str, Any]:
    return {"protocol": protocol.version, "features": to_json(protocol.features)}


def _protocol(row: Row[Any]) -> PeerProtocol:
    """For a row from before the column existed, the first version."""
    return PeerProtocol.said(row.protocol, strings_of(row.features or "[]"))


def _capabilities(values: dict[str, Any]) -> Capabilities:
    profile_types = tuple(ProfileType(name) for name in values.pop("profile_types"))
    gpus = tuple(Gpu(**gpu) for gpu in values.pop("gpus"))
    return Capabilities(**values, profile_types=profile_types, gpus=gpus)


def _site_conditions(where: SiteFilter) -> Conditions:
    found = [*at_sites(where, _SITES.name), *labelled(where.selector, _SITES.labels)]
    found += containing(where.contains, _SITES.name)
    in_reach = _in_reach(where.window)
    found += matching(where.parts, _site_words(in_reach))
    if where.in_reach is not None:
        found.append(in_reach if where.in_reach else ~in_reach)
    if where.attention:
        found.append(or_(_SITES.problem.is_not(None), ~in_reach))
    return found


def _site_words(in_reach: ColumnElement[bool]) -> Mapping[str, Callable[[str], ColumnElement[bool]]]:
    def is_in(value: str) -> ColumnElement[bool]:
        """As the page shows it: live or lost, or what a deployment there is in."""
        found = [_has_deployment(like(value, _DEPLOYMENTS.state))]
        found += [in_reach] if matches(value, Liveness.LIVE.value) else []
        found += [~in_reach] if matches(value, Liveness.LOST.value) else []
        return or_(*found)

    return {
        TEXT: lambda value: like(value, _SITES.name, within=True),
        "site": lambda value: like(value, _SITES.name),
        "node": lambda value: exists().where(_NODES.site == _SITES.name, like(value, _NODES.id)),
        "app": lambda value: _has_deployment(like(value, _DEPLOYMENTS.app_name)),
        "state": is_in,
        "code": lambda value: _has_deployment(_INSTANCES.deployment_id == _DEPLOYMENTS.id, _failed_as(value)),
        "label": lambda value: labelled_as(value, _SITES.labels),
    }


def _has_deployment(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(_DEPLOYMENTS.site == _SITES.name, _DEPLOYMENTS.archived_at.is_(None), *conditions)


def _failed_as(pattern: str) -> ColumnElement[bool]:
    return and_(_INSTANCES.failure_code.is_not(None), like(pattern, _INSTANCES.failure_code))


def _node_words(liveness: ColumnElement[str]) -> Mapping[str, Callable[[str], ColumnElement[bool]]]:
    def is_in(value: str) -> ColumnElement[bool]:
        """Live, stale, lost, unknown or drained, or what something on it is in."""
        found = [like(value, liveness), _has_instance(like(value, _INSTANCES.state))]
        return or_(*found, _NODES.drain.is_not(None)) if matches(value, DRAINED) else or_(*found)

    labelled_sites = schema.sites.alias()
    return {
        TEXT: lambda value: like(value, _NODES.id + "@" + _NODES.site, within=True),
        "site": lambda value: like(value, _NODES.site),
        "node": lambda value: like(value, _NODES.id),
        "app": lambda value: _has_instance(like(value, _DEPLOYMENTS.app_name)),
        "state": is_in,
        "code": lambda value: _has_instance(_failed_as(value)),
        "label": lambda value: or_(
            labelled_as(value, _NODES.labels, _NODES.tunable),
            _NODES.site.in_(select(labelled_sites.c.name).where(labelled_as(value, labelled_sites.c.labels))),
        ),
    }


def _has_instance(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(
        _DEPLOYMENTS.site == _NODES.site,
        _DEPLOYMENTS.archived_at.is_(None),
        _INSTANCES.deployment_id == _DEPLOYMENTS.id,
        _INSTANCES.node_id == _NODES.id,
        _INSTANCES.state != State.DELETED.value,
        *conditions,
    )


def _in_reach(window: ReachWindow | None) -> ColumnElement[bool]:
    """Never NULL, so that it can be negated."""
    if window is None:
        return true()
    return and_(_SITES.last_seen.is_not(None), _SITES.last_seen > window.begin, _SITES.last_seen < window.end)


def _node_conditions(where: NodeFilter) -> Conditions:
    found, liveness = at_sites(where, _NODES.site), _liveness(where)["liveness"]
    found += containing(where.contains, _NODES.id + "@" + _NODES.site)
    found += matching(where.parts, _node_words(liveness))
    if where.ids is not None:
        found.append(_NODES.id.in_(sorted(where.ids)))
    if where.liveness is not None:
        found.append(liveness == where.liveness.value)
    if where.attention:
        wrong = liveness.in_([Liveness.STALE.value, Liveness.LOST.value])
        found.append(or_(_NODES.problem.is_not(None), wrong))
    return found


def _liveness(where: NodeFilter) -> dict[str, ColumnElement[str]]:
    """The same rule as `core.lifecycle.node.liveness_at_central`."""
    if where.window is None:
        return {"liveness": _NODES.liveness}
    heard = select(_SITES.name).where(_in_reach(where.window))
    is_known = or_(_NODES.liveness == Liveness.LOST.value, _NODES.site.in_(heard))
    return {"liveness": case((is_known, _NODES.liveness), else_=Liveness.UNKNOWN.value)}


SITES: ListSource[Site, SiteFilter] = ListSource(
    table=schema.sites,
    record=_site,
    conditions=_site_conditions,
    orders={
        "name": SortOrder((_SITES.name,)),
        "joined": SortOrder((_SITES.joined_at, _SITES.name), descending=frozenset({"joined_at", "name"})),
    },
)
NODES: ListSource[Node, NodeFilter] = ListSource(
    table=schema.nodes,
    record=_node,
    conditions=_node_conditions,
    words={"liveness": Liveness},
    orders={
        "site": SortOrder((_NODES.site, _NODES.id)),
        "seen": SortOrder(
            (_NODES.last_seen, _NODES.site, _NODES.id), descending=frozenset({"last_seen", "site", "id"})
        ),
    },
    derived=_liveness,
)
