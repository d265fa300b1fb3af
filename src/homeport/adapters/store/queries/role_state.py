"""A role's own state: the desired files a site has accepted, its outbox, a few named values."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import Connection
from homeport.core.model.lease import Lease
from homeport.ports import DesiredFile, Outgoing
from homeport.vocabulary import DeploymentId

_FILES = schema.desired_files.c
_OUTBOX = schema.outbox.c
_COUNTERS = schema.counters.c
_VALUES = schema.role_values.c


async def find_desired_files(connection: Connection) -> Sequence[DesiredFile]:
    rows = await connection.rows(select(schema.desired_files).order_by(_FILES.deployment_id))
    return [DesiredFile(**row._mapping) for row in rows]


async def put_desired_files(connection: Connection, files: Sequence[DesiredFile]) -> None:
    if not files:
        return
    rows = [
        {"deployment_id": file.deployment_id, "path": file.path, "revision": file.revision, "content": file.content}
        for file in files
    ]
    await connection.run(insert_or_update(connection, schema.desired_files), rows)


async def drop_desired_files(connection: Connection, deployment_ids: Sequence[DeploymentId]) -> None:
    for piece in pieces(deployment_ids):
        await connection.run(delete(schema.desired_files).where(_FILES.deployment_id.in_(piece)))


async def find_outbox(connection: Connection, *, limit: int, after: int) -> Sequence[Outgoing]:
    query = select(schema.outbox).where(_OUTBOX.sequence > after).order_by(_OUTBOX.sequence)
    rows = await connection.rows(query.limit(limit))
    return [Outgoing(row.sequence, from_json(row.body), len(row.body)) for row in rows]


async def outbox_size(connection: Connection) -> int:
    row = await connection.first(select(func.count()).select_from(schema.outbox))
    return 0 if row is None else int(row[0])


async def outbox_bytes(connection: Connection) -> int:
    """JSON is written in ASCII, so a character is a byte."""
    row = await connection.first(select(func.coalesce(func.sum(func.length(_OUTBOX.body)), 0)))
    return 0 if row is None else int(row[0])


async def outbox_left(connection: Connection) -> int:
    row = await connection.first(select(func.min(_OUTBOX.sequence)))
    if row is not None and row[0] is not None:
        return int(row[0]) - 1
    counter = await connection.first(select(_COUNTERS.value).where(_COUNTERS.name == schema.outbox.name))
    return 0 if counter is None else int(counter.value)


async def dequeue(connection: Connection, up_to_sequence: int) -> None:
    await connection.run(delete(schema.outbox).where(_OUTBOX.sequence <= up_to_sequence))


async def drop_outbox(connection: Connection, after_sequence: int) -> None:
    await connection.run(delete(schema.outbox).where(_OUTBOX.sequence > after_sequence))


async def find_value(connection: Connection, key: str) -> str | None:
    row = await connection.first(select(_VALUES.value).where(_VALUES.key == key))
    return None if row is None else str(row.value)


async def find_values(connection: Connection, keys: Sequence[str]) -> Mapping[str, str]:
    query = select(_VALUES.key, _VALUES.value)
    return {
        str(row.key): str(row.value)
        for piece in pieces(keys)
        for row in await connection.rows(query.where(_VALUES.key.in_(piece)))
    }


async def set_value(connection: Connection, key: str, value: str) -> None:
    await connection.run(insert_or_update(connection, schema.role_values), {"key": key, "value": value})


async def find_lease(connection: Connection, name: str) -> Lease | None:
    query = select(schema.leases).where(schema.leases.c.name == name)
    row = await connection.first(query.with_for_update(read=True) if connection.is_postgresql else query)
    return None if row is None else Lease(row.name, row.holder, int(row.token))


def outbox_row(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"body": to_json(body)}
