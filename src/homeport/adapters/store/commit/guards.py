"""Optimistic locking: writes name the version they have read. A write with an old one is refused and changes
nothing."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table

from homeport.adapters.store.commit.statements import insert_counted, update_guarded
from homeport.adapters.store.databases.errors import Connection
from homeport.errors import Conflict


async def put_all(
    connection: Connection,
    table: Table,
    keyed_rows: Iterable[tuple[Hashable, dict[str, Any]]],
    *,
    only_if: str | None = None,
) -> None:
    """Inserts the rows of version 1 and updates the others. One of version 1 whose key is there already is refused;
    with `only_if`, it replaces the row where that column grows."""
    for batch in _without_repeats(keyed_rows):
        new = [row for row in batch if row["version"] == 1]
        changed = [row for row in batch if row["version"] != 1]
        if new:
            _expect_all(await insert_counted(connection, table, new, only_if=only_if), new, table)
        if changed:
            _expect_all(await update_guarded(connection, table, changed), changed, table)


def _expect_all(count: int, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
    if count != len(rows):
        raise Conflict(f"{len(rows) - count} of {len(rows)} {table.name} have changed since they were read.")


def _without_repeats(keyed_rows: Iterable[tuple[Hashable, dict[str, Any]]]) -> list[list[dict[str, Any]]]:
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
