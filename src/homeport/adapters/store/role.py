"""What a role keeps for itself: the desired files a site has accepted, its outbox, a few named values."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.statements import insert_or_update, pieces
from homeport.ports import DesiredFile, Outgoing
from homeport.vocabulary import DeploymentId

_FILES = schema.desired_files.c
_OUTBOX = schema.outbox.c
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


async def find_outbox(connection: Connection, *, limit: int) -> Sequence[Outgoing]:
    rows = await connection.rows(select(schema.outbox).order_by(_OUTBOX.sequence).limit(limit))
    return [Outgoing(row.sequence, from_json(row.body)) for row in rows]


async def outbox_size(connection: Connection) -> int:
    row = await connection.first(select(func.count()).select_from(schema.outbox))
    return 0 if row is None else int(row[0])


async def dequeue(connection: Connection, up_to_sequence: int) -> None:
    await connection.run(delete(schema.outbox).where(_OUTBOX.sequence <= up_to_sequence))


async def find_value(connection: Connection, key: str) -> str | None:
    row = await connection.first(select(_VALUES.value).where(_VALUES.key == key))
    return None if row is None else str(row.value)


async def set_value(connection: Connection, key: str, value: str) -> None:
    await connection.run(insert_or_update(connection, schema.role_values), {"key": key, "value": value})


def outbox_row(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"body": to_json(body)}
