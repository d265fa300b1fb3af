"""The catalog of models."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Row, delete, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.commit.statements import insert_or_nothing, insert_or_update
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import record, records
from homeport.core.inference.models.entries import ModelEntry, entry_data, read_entry

_MODELS = schema.catalog_models.c


async def find_models(connection: SqlConnection) -> Sequence[ModelEntry]:
    return await records(
        connection, select(schema.catalog_models).order_by(_MODELS.id), _model, schema.catalog_models
    )


async def find_model(connection: SqlConnection, model_id: str) -> ModelEntry | None:
    query = select(schema.catalog_models).where(_MODELS.id == model_id)
    return await record(connection, query, _model, schema.catalog_models)


def _model(row: Row[Any]) -> ModelEntry:
    return read_entry(from_json(row.document))


async def count_models(connection: SqlConnection) -> int:
    row = await connection.first(select(func.count().label("kept")).select_from(schema.catalog_models))
    return 0 if row is None else int(row.kept)


async def add_models(connection: SqlConnection, entries: Sequence[ModelEntry]) -> None:
    if entries:
        await connection.run(insert_or_nothing(connection, schema.catalog_models), list(map(_row, entries)))


async def change_model(
    connection: SqlConnection, model_id: str, change: Callable[[ModelEntry | None], ModelEntry | None]
) -> ModelEntry | None:
    query = select(schema.catalog_models).where(_MODELS.id == model_id)
    # Another central that changes the same model waits until this change is durable.
    query = query.with_for_update() if connection.is_postgresql else query
    before = await record(connection, query, _model, schema.catalog_models)
    changed = change(before)
    if changed is not None:
        await connection.run(insert_or_update(connection, schema.catalog_models), [_row(changed)])
    elif before is not None:
        await connection.run(delete(schema.catalog_models).where(_MODELS.id == model_id))
    return changed


def _row(entry: ModelEntry) -> dict[str, str]:
    return {"id": entry.id, "document": to_json(entry_data(entry))}
