"""Optimistic locking: writes name the version they have read. A write with an old one is refused and changes
nothing."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, select

from homeport.adapters.store.commit.statements import insert_or_nothing, insert_or_update, update_guarded
from homeport.adapters.store.databases.errors import Connection
from homeport.adapters.store.rows import Build, keep
from homeport.errors import Conflict
from homeport.log import get_log

log = get_log("homeport.store")


async def insert_all(
    connection: Connection,
    table: Table,
    rows: Sequence[dict[str, Any]],
    build: Build[Any],
    *,
    only_if: str | None = None,
) -> None:
    """Inserts rows whose keys are new. A row that cannot be read is in nobody's way: it is replaced."""
    keys = list(table.primary_key)
    statement = (
        insert_or_nothing(connection, table)
        if only_if is None
        else insert_or_update(connection, table, only_if=only_if)
    ).returning(*keys)
    written = {tuple(row) for row in await connection.rows(statement, rows)}
    if len(written) == len(rows):
        return
    left = [row for row in rows if tuple(row[key.name] for key in keys) not in written]
    for row in left:
        await drop_unreadable(connection, table, [key == row[key.name] for key in keys], build)
    again = await connection.rows(statement, left) if left else ()
    expect_all(len(written) + len(again), rows, table)


async def drop_unreadable(
    connection: Connection, table: Table, is_it: Sequence[ColumnElement[bool]], build: Build[Any]
) -> None:
    rows = await connection.rows(select(table).where(*is_it))
    if rows and not keep(connection, rows, build, table):
        log.error("unreadable row replaced", table=table.name)
        await connection.run(delete(table).where(*is_it))


async def update_all(connection: Connection, table: Table, batch: Sequence[Mapping[str, Any]]) -> None:
    changed = [row for row in batch if row["version"] != 1]
    if changed:
        expect_all(await update_guarded(connection, table, changed), changed, table)


def expect_all(count: int, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
    if count != len(rows):
        raise Conflict(f"{len(rows) - count} of {len(rows)} {table.name} have changed since they were read.")


def without_repeats(keyed_rows: Iterable[tuple[Hashable, dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Batches in which no key is repeated, so that two steps of one item in one call are two updates."""
    batches: list[list[dict[str, Any]]] = []
    times_seen: Counter[Hashable] = Counter()
    for key, row in keyed_rows:
        number = times_seen[key]
        times_seen[key] += 1
        if number == len(batches):
            batches.append([])
        batches[number].append(row)
    return batches
