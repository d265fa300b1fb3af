"""Older contents of deployments, and pins (manual rollbacks)."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, delete, select, tuple_

from homeport.adapters.store import schema
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import records, sound_rows
from homeport.core.model.deployment import Pin, Revision
from homeport.ports import RevisionUser
from homeport.vocabulary import DeploymentId, Digest

_REVISIONS = schema.revisions.c
_PINS = schema.pins.c


async def find_revisions(connection: SqlConnection, deployment_id: DeploymentId) -> Sequence[Revision]:
    query = (
        select(schema.revisions)
        .where(_REVISIONS.deployment_id == deployment_id)
        .order_by(_REVISIONS.at.desc(), _REVISIONS.revision)
    )
    return await records(connection, query, _revision, schema.revisions)


async def find_revisions_of(connection: SqlConnection, deployment_ids: Sequence[DeploymentId]) -> Sequence[Revision]:
    found: list[Revision] = []
    for piece in pieces(deployment_ids):
        query = select(schema.revisions).where(_REVISIONS.deployment_id.in_(piece))
        found += await records(connection, query, _revision, schema.revisions)
    return found


def _revision(row: Row[Any]) -> Revision:
    return Revision(**row._mapping)


async def find_users(connection: SqlConnection) -> Sequence[RevisionUser]:
    deployments = schema.deployments.c
    query = (
        select(_REVISIONS.deployment_id, _REVISIONS.revision, deployments.site, deployments.name)
        .join(schema.deployments, deployments.id == _REVISIONS.deployment_id)
        .where(deployments.archived_at.is_(None))
        .order_by(_REVISIONS.deployment_id, _REVISIONS.revision)
    )
    return await records(connection, query, lambda row: RevisionUser(**row._mapping), schema.revisions)


async def find_contents(
    connection: SqlConnection, wanted: Mapping[DeploymentId, Digest]
) -> Mapping[DeploymentId, bytes]:
    query = select(_REVISIONS.deployment_id, _REVISIONS.content)
    key = tuple_(_REVISIONS.deployment_id, _REVISIONS.revision)
    found: list[tuple[DeploymentId, bytes]] = []
    for piece in pieces(sorted(wanted.items())):
        found += await records(connection, query.where(key.in_(piece)), tuple, schema.revisions)
    return dict(found)


async def put_revisions(connection: SqlConnection, revisions: Sequence[Revision], *, keep: int) -> None:
    if not revisions:
        return
    rows = [
        {
            "deployment_id": each.deployment_id,
            "revision": each.revision,
            "app_version": each.app_version,
            "content": each.content,
            "commit": each.commit,
            "author": each.author,
            "at": each.at,
        }
        for each in revisions
    ]
    await connection.run(insert_or_update(connection, schema.revisions), rows)
    for piece in pieces(sorted({each.deployment_id for each in revisions})):
        await _trim(connection, piece, keep)


async def _trim(connection: SqlConnection, deployment_ids: Sequence[DeploymentId], keep: int) -> None:
    """Reads keys only: contents may be large, and there is seldom anything to delete."""
    query = (
        select(_REVISIONS.deployment_id, _REVISIONS.revision)
        .where(_REVISIONS.deployment_id.in_(deployment_ids))
        .order_by(_REVISIONS.deployment_id, _REVISIONS.at.desc(), _REVISIONS.revision)
    )
    counts: dict[str, int] = {}
    for row in await sound_rows(connection, query, schema.revisions):
        counts[row.deployment_id] = counts.get(row.deployment_id, 0) + 1
        if counts[row.deployment_id] > keep:
            old = (_REVISIONS.deployment_id == row.deployment_id, _REVISIONS.revision == row.revision)
            await connection.run(delete(schema.revisions).where(*old))


async def drop_revisions(connection: SqlConnection, deployment_ids: Sequence[DeploymentId]) -> None:
    for piece in pieces(deployment_ids):
        await connection.run(delete(schema.revisions).where(_REVISIONS.deployment_id.in_(piece)))


async def find_versions(connection: SqlConnection, deployment_ids: Sequence[DeploymentId]) -> Mapping[Digest, str]:
    query = select(_REVISIONS.revision, _REVISIONS.app_version)
    found: list[tuple[Digest, str]] = []
    for piece in pieces(sorted(set(deployment_ids))):
        found += await records(connection, query.where(_REVISIONS.deployment_id.in_(piece)), tuple, schema.revisions)
    return dict(found)


async def find_pins(connection: SqlConnection, deployment_ids: Sequence[DeploymentId] | None) -> Sequence[Pin]:
    query = select(schema.pins).order_by(_PINS.deployment_id, _PINS.at, _PINS.over)
    if deployment_ids is None:
        return await records(connection, query, _pin, schema.pins)
    found: list[Pin] = []
    for piece in pieces(sorted(set(deployment_ids))):
        found += await records(connection, query.where(_PINS.deployment_id.in_(piece)), _pin, schema.pins)
    return found


def _pin(row: Row[Any]) -> Pin:
    return Pin(**row._mapping)


async def put_pin(connection: SqlConnection, pin: Pin) -> None:
    await connection.run(
        insert_or_update(connection, schema.pins),
        {
            "deployment_id": pin.deployment_id,
            "revision": pin.revision,
            "content": pin.content,
            "over": pin.over,
            "reason": pin.reason,
            "author": pin.author,
            "at": pin.at,
        },
    )


async def drop_pins(connection: SqlConnection, deployment_ids: Sequence[DeploymentId]) -> None:
    for piece in pieces(deployment_ids):
        await connection.run(delete(schema.pins).where(_PINS.deployment_id.in_(piece)))
