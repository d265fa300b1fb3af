"""A role's own state: the desired files a site has accepted, its outbox, a few named values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Row, delete, func, select, tuple_

from homeport.adapters.store import schema
from homeport.adapters.store.columns import POSITION_MAX, object_from_json, to_json
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import keep, record, records
from homeport.core.model.lease import Lease
from homeport.ports import DesiredFile, Outgoing
from homeport.vocabulary import DeploymentId, NodeId

T = TypeVar("T")

_FILES = schema.desired_files.c
_OUTBOX = schema.outbox.c
_COUNTERS = schema.counters.c
_VALUES = schema.role_values.c
_INSTANCE_VALUES = schema.instance_values.c
_UNREADABLE: Final = {"kind": "unreadable"}


async def find_desired_files(connection: SqlConnection) -> Sequence[DesiredFile]:
    query = select(schema.desired_files).order_by(_FILES.deployment_id)
    return await records(connection, query, _file, schema.desired_files)


def _file(row: Row[Any]) -> DesiredFile:
    return DesiredFile(**row._mapping)


async def put_desired_files(connection: SqlConnection, files: Sequence[DesiredFile]) -> None:
    if not files:
        return
    rows = [
        {"deployment_id": file.deployment_id, "path": file.path, "revision": file.revision, "content": file.content}
        for file in files
    ]
    await connection.run(insert_or_update(connection, schema.desired_files), rows)


async def drop_desired_files(connection: SqlConnection, deployment_ids: Sequence[DeploymentId]) -> None:
    for piece in pieces(deployment_ids):
        await connection.run(delete(schema.desired_files).where(_FILES.deployment_id.in_(piece)))


async def find_outbox(connection: SqlConnection, *, limit: int, after: int) -> Sequence[Outgoing]:
    """A report that cannot be read is sent as one of an unknown kind: central would wait for its number, and
    sets such a report aside with an event."""
    is_due = (_OUTBOX.sequence > after, _OUTBOX.sequence < POSITION_MAX)
    query = select(schema.outbox).where(*is_due).order_by(_OUTBOX.sequence).limit(limit)
    rows = await connection.rows(query)
    read = {each.sequence: each for each in keep(connection, rows, _outgoing, schema.outbox)}
    return [read.get(row.sequence, Outgoing(row.sequence, _UNREADABLE, 0)) for row in rows]


def _outgoing(row: Row[Any]) -> Outgoing:
    return Outgoing(row.sequence, object_from_json(row.body), len(row.body))


async def outbox_size(connection: SqlConnection) -> int:
    row = await connection.first(select(func.count()).select_from(schema.outbox))
    return 0 if row is None else int(row[0])


async def outbox_bytes(connection: SqlConnection) -> int:
    """JSON is written in ASCII, so a character is a byte."""
    row = await connection.first(select(func.coalesce(func.sum(func.length(_OUTBOX.body)), 0)))
    return 0 if row is None else int(row[0])


async def outbox_left(connection: SqlConnection) -> int:
    row = await connection.first(select(func.min(_OUTBOX.sequence)))
    if row is not None and row[0] is not None:
        return int(row[0]) - 1
    counter = await connection.first(select(_COUNTERS.value).where(_COUNTERS.name == schema.outbox.name))
    return 0 if counter is None else int(counter.value)


async def dequeue(connection: SqlConnection, up_to_sequence: int) -> None:
    await connection.run(delete(schema.outbox).where(_OUTBOX.sequence <= up_to_sequence))


async def drop_outbox(connection: SqlConnection, after_sequence: int) -> None:
    await connection.run(delete(schema.outbox).where(_OUTBOX.sequence > after_sequence))


async def find_value(connection: SqlConnection, key: str) -> str | None:
    return await find_value_as(connection, key, str)


async def find_value_as(connection: SqlConnection, key: str, parse: Callable[[str], T]) -> T | None:
    query = select(schema.role_values).where(_VALUES.key == key)
    return await record(connection, query, lambda row: parse(row.value), schema.role_values)


async def find_values(connection: SqlConnection, keys: Sequence[str]) -> Mapping[str, str]:
    found: list[tuple[str, str]] = []
    for piece in pieces(keys):
        query = select(schema.role_values).where(_VALUES.key.in_(piece))
        found += await records(connection, query, tuple, schema.role_values)
    return dict(found)


async def set_value(connection: SqlConnection, key: str, value: str) -> None:
    await connection.run(insert_or_update(connection, schema.role_values), {"key": key, "value": value})


async def find_instance_values(
    connection: SqlConnection, name: str, parse: Callable[[str], T]
) -> Mapping[tuple[DeploymentId, NodeId], T]:
    query = select(schema.instance_values).where(_INSTANCE_VALUES.name == name)
    return dict(
        await records(
            connection,
            query,
            lambda row: ((row.deployment_id, row.node_id), parse(row.value)),
            schema.instance_values,
        )
    )


async def put_instance_values(
    connection: SqlConnection, name: str, values: Mapping[tuple[DeploymentId, NodeId], str]
) -> None:
    if values:
        rows = [
            {"name": name, "deployment_id": deployment, "node_id": node, "value": value}
            for (deployment, node), value in values.items()
        ]
        await connection.run(insert_or_update(connection, schema.instance_values), rows)


async def drop_instance_values(
    connection: SqlConnection, name: str, keys: Sequence[tuple[DeploymentId, NodeId]]
) -> None:
    key = tuple_(_INSTANCE_VALUES.deployment_id, _INSTANCE_VALUES.node_id)
    for piece in pieces(keys):
        dropped = (_INSTANCE_VALUES.name == name, key.in_(piece))
        await connection.run(delete(schema.instance_values).where(*dropped))


async def find_lease(connection: SqlConnection, name: str) -> Lease | None:
    query = select(schema.leases).where(schema.leases.c.name == name)
    row = await connection.first(query.with_for_update(read=True) if connection.is_postgresql else query)
    return None if row is None else Lease(row.name, row.holder, int(row.token))


def outbox_row(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"body": to_json(body)}
