"""Rows that are only ever added at the end: events, history, outbox.

Within one group commit they are collected and written together, once, so that a work which adds one event costs
no statement of its own. Their keys are counted here. There is one writer, so ids follow the order of commits and
have no gaps: a reader that has seen 7 and asks for what is after 7 misses nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Table, func, insert, select

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.adapters.store.role import OUTBOX_COUNTER
from homeport.adapters.store.statements import insert_or_update

_KEYS: Final[Mapping[Table, str]] = {schema.events: "id", schema.history: "id", schema.outbox: "sequence"}

Counts = Mapping[Table, int]
"""The last number given out in each table."""


async def load_counts(connection: Connection) -> Counts:
    counts: dict[Table, int] = {}
    for table, key in _KEYS.items():
        row = await connection.first(select(func.max(table.c[key])))
        counts[table] = 0 if row is None or row[0] is None else int(row[0])
    counter = await connection.first(select(schema.counters.c.value).where(schema.counters.c.name == OUTBOX_COUNTER))
    if counter is not None:
        counts[schema.outbox] = max(counts[schema.outbox], int(counter.value))
    return counts


@dataclass(slots=True)
class _Tail:
    """The new rows of one table, and how many of them are written already."""

    last: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    written: int = 0


Mark = tuple[tuple[int, int, int], ...]


class Appends:
    """The tails of one group commit. `mark` and `restore` take back what a failed work has added."""

    def __init__(self, counts: Counts) -> None:
        self._tails = {table: _Tail(counts[table]) for table in _KEYS}

    @property
    def counts(self) -> Counts:
        return {table: tail.last for table, tail in self._tails.items()}

    def add(self, table: Table, rows: Iterable[dict[str, Any]]) -> None:
        # All rows are built before the first is kept: one that cannot be built leaves nothing behind.
        tail, key = self._tails[table], _KEYS[table]
        for row in list(rows):
            tail.last += 1
            row[key] = tail.last
            tail.rows.append(row)

    def is_written(self, table: Table) -> bool:
        tail = self._tails[table]
        return tail.written == len(tail.rows)

    def mark(self) -> Mark:
        return tuple((tail.last, len(tail.rows), tail.written) for tail in self._tails.values())

    def restore(self, mark: Mark) -> None:
        """Back to `mark`. Rows of earlier works that were written since then are written again later, for the
        database has taken them back as well."""
        for tail, (last, length, written) in zip(self._tails.values(), mark, strict=True):
            tail.last = last
            del tail.rows[length:]
            tail.written = written

    async def write(self, connection: Connection, table: Table) -> None:
        tail = self._tails[table]
        if tail.written == len(tail.rows):
            return
        await connection.run(insert(table), tail.rows[tail.written :])
        if table is schema.outbox:
            counter = {"name": OUTBOX_COUNTER, "value": tail.last}
            await connection.run(insert_or_update(connection, schema.counters), counter)
        tail.written = len(tail.rows)

    async def write_all(self, connection: Connection) -> None:
        for table in _KEYS:
            await self.write(connection, table)
