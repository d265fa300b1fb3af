"""Statements that differ between the two databases, and the splitting of long lists."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Table, Update, and_, bindparam, func, literal_column, update
from sqlalchemy.dialects import sqlite

from homeport.adapters.store.databases.errors import NEW, SqlConnection

T = TypeVar("T")
if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

Insert: TypeAlias = "postgresql.Insert | sqlite.Insert"

LIST_MAX = 5_000
"""Both drivers accept some 32,000 parameters in one statement; lists are split well below that."""


def pieces(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), LIST_MAX):
        yield items[start : start + LIST_MAX]


def insert_or_nothing(connection: SqlConnection, table: Table) -> Insert:
    return _insert_or_nothing(table, is_postgresql=connection.is_postgresql)


def insert_or_update(connection: SqlConnection, table: Table, *, only_if: str | None = None) -> Insert:
    """Inserts by primary key, or replaces the existing row; with `only_if`, only where that column grows."""
    return _insert_or_update(table, only_if, is_postgresql=connection.is_postgresql)


def insert_or_add(connection: SqlConnection, table: Table) -> Insert:
    """Inserts by primary key, or adds to the numbers of the existing row."""
    return _insert_or_add(table, is_postgresql=connection.is_postgresql)


async def insert_counted(
    connection: SqlConnection, table: Table, rows: Sequence[Mapping[str, Any]], *, only_if: str | None = None
) -> int:
    """Inserts the rows whose key is not there yet, and with `only_if` replaces those where that column grows; returns
    how many that were. All of `rows` have the same columns."""
    if only_if is None:
        statement = insert_or_nothing(connection, table)
    else:
        statement = insert_or_update(connection, table, only_if=only_if)
    if not connection.is_postgresql:
        return await connection.run_each(statement, rows)
    return len(await connection.rows(statement.returning(*table.primary_key), rows))


async def update_guarded(connection: SqlConnection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Updates each row whose stored version is one less than the given one; returns the number of updated rows.

    No two of `rows` may have the same key. SQLite runs the statement once per row, which is cheap; PostgreSQL gets
    the rows as arrays, column by column, so that hundreds are one round trip and are counted.
    """
    if not connection.is_postgresql:
        return await connection.run_each(_update_each(table), rows)
    return await connection.run_with_arrays(_update_from_arrays(table), rows)


# Statements are cached: building one takes longer than running it.


@lru_cache
def _insert_or_nothing(table: Table, *, is_postgresql: bool) -> Insert:
    return _insert(table, is_postgresql=is_postgresql).on_conflict_do_nothing()


@lru_cache
def _insert_or_update(table: Table, only_if: str | None, *, is_postgresql: bool) -> Insert:
    statement = _insert(table, is_postgresql=is_postgresql)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={column.name: new[column.name] for column in table.columns if not column.primary_key},
        where=None if only_if is None else new[only_if] > table.c[only_if],
    )


@lru_cache
def _insert_or_add(table: Table, *, is_postgresql: bool) -> Insert:
    statement = _insert(table, is_postgresql=is_postgresql)
    numbers = [column for column in table.columns if not column.primary_key]
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={column.name: column + statement.excluded[column.name] for column in numbers},
    )


def _insert(table: Table, *, is_postgresql: bool) -> Insert:
    if not is_postgresql:
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - not needed with SQLite

    return postgresql.insert(table)


@lru_cache
def _update_each(table: Table) -> Update:
    new = {column.name: bindparam(f"{NEW}{column.name}", type_=column.type) for column in table.columns}
    return _guarded(table, new)


@lru_cache
def _update_from_arrays(table: Table) -> Update:
    from sqlalchemy.dialects.postgresql import ARRAY  # noqa: PLC0415 - see above

    arrays = [bindparam(f"{NEW}{column.name}", type_=ARRAY(column.type)) for column in table.columns]
    names = [column.name for column in table.columns]
    new = func.unnest(*arrays).table_valued(*names, name="new").render_derived()
    return _guarded(table, {name: new.c[name] for name in names})


def _guarded(table: Table, new: Mapping[str, ColumnElement[Any]]) -> Update:
    is_it = and_(*(column == new[column.name] for column in table.primary_key))
    return (
        update(table)
        .where(is_it, table.c.version == new["version"] - literal_column("1"))
        .values({column: new[column.name] for column in table.columns if not column.primary_key})
    )
