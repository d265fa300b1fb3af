"""Optimistic locking: writes name the version they have read. A write with an old one is refused and changes
nothing."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table

from homeport.adapters.store.commit.statements import update_guarded
from homeport.adapters.store.databases.errors import Connection
from homeport.errors import Conflict


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
