"""The catalog of models."""

from collections.abc import Callable, Sequence

from sqlalchemy import delete, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.commit.statements import insert_or_nothing, insert_or_update
from homeport.adapters.store.databases.errors import Connection
from homeport.core.inference.models.entries import ModelEntry, entry_data, read_entry
from homeport.errors import InvalidInput
from homeport.log import get_log

log = get_log("homeport.store")

_MODELS = schema.catalog_models.c


async def find_models(connection: Connection) -> Sequence[ModelEntry]:
    found = []
    for row in await connection.rows(select(schema.catalog_models).order_by(_MODELS.id)):
        try:
            found.append(read_entry(from_json(row.document)))
        except (InvalidInput, TypeError, ValueError, AttributeError) as error:
            log.warning("model entry left out", model=row.id, why=str(error))
    return found


async def find_model(connection: Connection, model_id: str) -> ModelEntry | None:
    row = await connection.first(select(_MODELS.document).where(_MODELS.id == model_id))
    return None if row is None else read_entry(from_json(row.document))


async def count_models(connection: Connection) -> int:
    row = await connection.first(select(func.count().label("kept")).select_from(schema.catalog_models))
    return 0 if row is None else int(row.kept)


async def add_models(connection: Connection, entries: Sequence[ModelEntry]) -> None:
    if entries:
        await connection.run(insert_or_nothing(connection, schema.catalog_models), list(map(_row, entries)))


async def change_model(
    connection: Connection, model_id: str, change: Callable[[ModelEntry | None], ModelEntry | None]
) -> ModelEntry | None:
    query = select(_MODELS.document).where(_MODELS.id == model_id)
    # Another central that changes the same model waits until this change is durable.
    row = await connection.first(query.with_for_update() if connection.is_postgresql else query)
    changed = change(None if row is None else read_entry(from_json(row.document)))
    if changed is not None:
        await connection.run(insert_or_update(connection, schema.catalog_models), [_row(changed)])
    elif row is not None:
        await connection.run(delete(schema.catalog_models).where(_MODELS.id == model_id))
    return changed


def _row(entry: ModelEntry) -> dict[str, str]:
    return {"id": entry.id, "document": to_json(entry_data(entry))}
