"""Optimistic locking: writes name the version they have read. A write with an old one is refused and changes
nothing."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, select

from homeport.adapters.store.commit.statements import insert_counted, update_guarded
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import Build, keep
from homeport.errors import Conflict
from homeport.log import get_log

log = get_log("homeport.store")


async def put_all(
    connection: SqlConnection,
    table: Table,
    keyed_rows: Iterable[tuple[Hashable, dict[str, Any]]],
    build: Build[Any],
    *,
    only_if: str | None = None,
) -> None:
    """Inserts the rows of version 1 and updates the others. One of version 1 whose key is there already is refused;
    with `only_if`, it replaces the row where that column grows. A row that `build` cannot read is replaced."""
    for batch in _without_repeats(keyed_rows):
        new = [row for row in batch if row["version"] == 1]
        changed = [row for row in batch if row["version"] != 1]
        if new:
            count = await insert_counted(connection, table, new, only_if=only_if)
            if count != len(new):
                again = [row for row in new if await drop_unreadable(connection, table, _is_row(table, row), build)]
                count += await insert_counted(connection, table, again, only_if=only_if) if again else 0
            _expect_all(count, new, table)
        if changed:
            _expect_all(await update_guarded(connection, table, changed), changed, table)


async def drop_unreadable(
    connection: SqlConnection, table: Table, is_it: Sequence[ColumnElement[bool]], build: Build[Any]
) -> bool:
    """Whether there was one."""
    rows = await connection.rows(select(table).where(*is_it))
    if not rows or keep(connection, rows, build, table):
        return False
    log.error("unreadable row replaced", table=table.name)
    await connection.run(delete(table).where(*is_it))
    return True


def _is_row(table: Table, row: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    return [column == row[column.name] for column in table.primary_key]


def _expect_all(count: int, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
    if count != len(rows):
        raise Conflict(f"{len(rows) - count} of {len(rows)} {table.name} have changed since they were read.")


def _without_repeats(keyed_rows: Iterable[tuple[Hashable, dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Batches in which no key is repeated, so that two steps of one item in one call are two updates."""
    keyed_rows = list(keyed_rows)
    if len({key for key, _ in keyed_rows}) == len(keyed_rows):
        return [[row for _, row in keyed_rows]] if keyed_rows else []
    batches: list[list[dict[str, Any]]] = []
    times_seen: Counter[Hashable] = Counter()
    for key, row in keyed_rows:
        number = times_seen[key]
        times_seen[key] += 1
        if number == len(batches):
            batches.append([])
        batches[number].append(row)
    return batches
