"""Sites and their nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, delete, select, update

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.statements import insert_or_update
from homeport.core.model.event import Site
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo
from homeport.vocabulary import Liveness, NodeId, ProfileType, SiteName

_NODES = schema.nodes.c


async def find_sites(connection: Connection) -> Sequence[Site]:
    return [_site(row) for row in await connection.rows(select(schema.sites).order_by(schema.sites.c.name))]


async def find_site(connection: Connection, name: SiteName) -> Site | None:
    row = await connection.first(select(schema.sites).where(schema.sites.c.name == name))
    return None if row is None else _site(row)


async def put_site(connection: Connection, site: Site) -> None:
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
        },
    )


async def find_nodes(connection: Connection, site: SiteName | None) -> Sequence[Node]:
    query = select(schema.nodes).order_by(_NODES.site, _NODES.id)
    if site is not None:
        query = query.where(_NODES.site == site)
    return [_node(row) for row in await connection.rows(query)]


async def find_nodes_called(connection: Connection, node_id: NodeId) -> Sequence[Node]:
    query = select(schema.nodes).where(_NODES.id == node_id).order_by(_NODES.site)
    return [_node(row) for row in await connection.rows(query)]


async def put_node(connection: Connection, node: Node) -> None:
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
        },
    )


async def touch_nodes(connection: Connection, site: SiteName, seen: Mapping[NodeId, datetime]) -> None:
    """Time only goes forward: an older sighting than the stored one is passed over."""
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


async def remove_node(connection: Connection, site: SiteName, node_id: NodeId) -> None:
    await connection.run(delete(schema.nodes).where(_NODES.site == site, _NODES.id == node_id))


def _site(row: Row[Any]) -> Site:
    return Site(**{**row._mapping, "labels": from_json(row.labels or "{}")})


def _node(row: Row[Any]) -> Node:
    info = NodeInfo(
        id=row.id,
        hostname=row.hostname,
        capabilities=_capabilities(from_json(row.capabilities)),
        labels=from_json(row.labels),
        software_version=row.software_version,
    )
    return Node(
        info=info,
        site=row.site,
        liveness=Liveness(row.liveness),
        last_seen=row.last_seen,
        registered_at=row.registered_at,
        drain=row.drain,
    )


def _capabilities(values: dict[str, Any]) -> Capabilities:
    profile_types = tuple(ProfileType(name) for name in values.pop("profile_types"))
    gpus = tuple(Gpu(**gpu) for gpu in values.pop("gpus"))
    return Capabilities(**values, profile_types=profile_types, gpus=gpus)
