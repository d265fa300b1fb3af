"""Append-only rows: events, history, outbox.

Within one group commit they are collected and written together, once, so that adding one event costs no statement of
its own. Their keys continue the rows of `counters`, the sequencer. A group commit on PostgreSQL locks these rows
before its first work runs and holds them until it is durable, so commits of all processes are serialised: ids follow
the order of commits and have no gaps, a reader that has seen 7 and asks for what is after 7 misses nothing, and a
work sees everything that was committed before it. SQLite has one writer by its file lock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from sqlalchemy import Integer, Table, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import POSITION_MAX
from homeport.adapters.store.commit.statements import insert_or_nothing
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log

log = get_log("homeport.store")

NUMBER_MAX: Final = 2**63 - 1
_KEYS: Final[Mapping[Table, str]] = {schema.events: "id", schema.history: "id", schema.outbox: "sequence"}
_NUMBERS: Final[Mapping[Table, Sequence[str]]] = {
    table: [column.name for column in table.columns if isinstance(column.type, Integer) and column.name != key]
    for table, key in _KEYS.items()
}

Counts = Mapping[Table, int]
"""The last number assigned in each table."""

_COUNTERS = schema.counters.c
# Always in the same order, or two commits could deadlock.
_PLAIN = select(schema.counters).where(_COUNTERS.name.in_([table.name for table in _KEYS])).order_by(_COUNTERS.name)
_LOCKED = _PLAIN.with_for_update()


async def create_counters(connection: SqlConnection) -> None:
    """A row that does not exist cannot be locked, so each is created up front. One that cannot be right, because rows
    are above it or no number could follow, is set to the last row: no commit would succeed."""
    for table, key in _KEYS.items():
        row = await connection.first(select(func.max(table.c[key])).where(table.c[key] < POSITION_MAX))
        last = 0 if row is None or row[0] is None else int(row[0])
        stored = await connection.first(select(_COUNTERS.value).where(_COUNTERS.name == table.name))
        if stored is None:
            await connection.run(insert_or_nothing(connection, schema.counters), {"name": table.name, "value": last})
        elif not (type(stored.value) is int and last <= stored.value < POSITION_MAX):
            log.error("counter repaired", counter=table.name, value=last)
            await connection.command(*_set_counters({table: last}))


async def load_counts(connection: SqlConnection) -> Counts:
    """On PostgreSQL also waits for running commits of other processes, and blocks them until this commit ends."""
    query = _LOCKED if connection.is_postgresql else _PLAIN
    values = {row.name: int(row.value) for row in await connection.rows(query)}
    return {table: values[table.name] for table in _KEYS}


@dataclass(slots=True)
class _Tail:
    """The new rows of one table, and how many of them are already written."""

    last: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    written: int = 0


def _check_numbers(table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    for name in _NUMBERS[table]:
        if not all(-NUMBER_MAX <= (row[name] or 0) <= NUMBER_MAX for row in rows):
            raise InvalidInput(f"The number in {name} does not fit into 64 bits.")


Mark = tuple[tuple[int, int, int], ...]


class Appends:
    """The new rows of one group commit. `mark` and `restore` undo what a failed work has added."""

    def __init__(self, counts: Counts) -> None:
        self.before = counts
        self._tails = {table: _Tail(counts[table]) for table in _KEYS}

    @property
    def counts(self) -> Counts:
        return {table: tail.last for table, tail in self._tails.items()}

    def add(self, table: Table, rows: Iterable[dict[str, Any]]) -> None:
        # All rows are built before the first is kept: one that cannot be built leaves nothing behind, and a value
        # that no database accepts is refused here, where it fails its own work and not the whole commit.
        tail, key = self._tails[table], _KEYS[table]
        built = list(rows)
        _check_numbers(table, built)
        for row in built:
            tail.last += 1
            row[key] = tail.last
            tail.rows.append(row)

    def is_written(self, table: Table) -> bool:
        tail = self._tails[table]
        return tail.written == len(tail.rows)

    def mark(self) -> Mark:
        return tuple((tail.last, len(tail.rows), tail.written) for tail in self._tails.values())

    def restore(self, mark: Mark) -> None:
        """Back to `mark`. Rows of earlier works that were written since then are written again later, because the
        database has rolled them back as well."""
        for tail, (last, length, written) in zip(self._tails.values(), mark, strict=True):
            tail.last = last
            del tail.rows[length:]
            tail.written = written

    async def write(self, connection: SqlConnection, table: Table) -> None:
        tail = self._tails[table]
        if tail.written == len(tail.rows):
            return
        await connection.append(table, tail.rows[tail.written :])
        tail.written = len(tail.rows)
        if table is schema.outbox:
            # A work that empties the outbox in the same transaction must still find its last sequence.
            await connection.command(*_set_counters({table: tail.last}))

    async def write_all(self, connection: SqlConnection) -> None:
        for table in _KEYS:
            await self.write(connection, table)

    @property
    def closing(self) -> tuple[str, ...]:
        """Statements that advance the sequencer; run with the commit, in one round trip."""
        return _set_counters({table: last for table, last in self.counts.items() if last != self.before[table]})


def _set_counters(counts: Counts) -> tuple[str, ...]:
    """Plain SQL is safe: both parts are our own, a table's name and a number."""
    return tuple(
        f"UPDATE counters SET value = {int(last)} WHERE name = '{table.name}'" for table, last in counts.items()
    )
