"""Deployments: what is wanted where, and the fold of what their instances say."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, select

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.guards import expect_all, update_all, without_repeats
from homeport.adapters.store.statements import insert_or_nothing, pieces
from homeport.core.model.event import Deployment
from homeport.ports import DeploymentFilter
from homeport.vocabulary import DeploymentId, State

_DEPLOYMENTS = schema.deployments.c


async def find_deployments(connection: Connection, where: DeploymentFilter) -> Sequence[Deployment]:
    archived = _DEPLOYMENTS.archived_at
    query = _sorted_deployments().where(archived.is_not(None) if where.archived else archived.is_(None))
    if where.site is not None:
        query = query.where(_DEPLOYMENTS.site == where.site)
    if where.name is not None:
        query = query.where(_DEPLOYMENTS.name == where.name)
    if where.state is not None:
        query = query.where(_DEPLOYMENTS.state == where.state.value)
    if where.rollout_id is not None:
        query = query.where(_DEPLOYMENTS.rollout_id == where.rollout_id)
    return [_deployment(row) for row in await connection.rows(query)]


async def find_deployment(connection: Connection, deployment_id: DeploymentId) -> Deployment | None:
    row = await connection.first(select(schema.deployments).where(_DEPLOYMENTS.id == deployment_id))
    return None if row is None else _deployment(row)


async def find_by_ids(connection: Connection, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]:
    found = [
        _deployment(row)
        for piece in pieces(sorted(set(deployment_ids)))
        for row in await connection.rows(select(schema.deployments).where(_DEPLOYMENTS.id.in_(piece)))
    ]
    return sorted(found, key=lambda deployment: (deployment.site, deployment.name, deployment.id))


async def find_by_prefix(connection: Connection, prefix: str) -> Sequence[Deployment]:
    """As a range of the key, which both databases answer from its index."""
    query = _sorted_deployments()
    if prefix:
        behind = prefix[:-1] + chr(min(ord(prefix[-1]) + 1, 0x10FFFF))
        query = query.where(_DEPLOYMENTS.id >= prefix, _DEPLOYMENTS.id < behind)
    return [_deployment(row) for row in await connection.rows(query)]


async def put_deployments(connection: Connection, deployments: Sequence[Deployment]) -> None:
    for batch in without_repeats((deployment.id, _deployment_row(deployment)) for deployment in deployments):
        new = [row for row in batch if row["version"] == 1]
        if new:
            insert = insert_or_nothing(connection, schema.deployments).returning(_DEPLOYMENTS.id)
            expect_all(len(await connection.rows(insert, new)), new, schema.deployments)
        await update_all(connection, schema.deployments, batch)


def _sorted_deployments() -> Select[Any]:
    return select(schema.deployments).order_by(_DEPLOYMENTS.site, _DEPLOYMENTS.name, _DEPLOYMENTS.id)


def _deployment(row: Row[Any]) -> Deployment:
    values = dict(row._mapping)
    values["parameters"] = from_json(values["parameters"])
    values["state"] = State(values["state"])
    return Deployment(**values)


def _deployment_row(deployment: Deployment) -> dict[str, Any]:
    row = {column.name: getattr(deployment, column.name) for column in schema.deployments.columns}
    row["parameters"] = to_json(deployment.parameters)
    row["state"] = deployment.state.value
    return row
