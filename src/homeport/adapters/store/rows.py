"""Rows become records here. A row that cannot be read is left out, so that it harms no other: SQLite stores any value
in any column, JSON is checked only here, and files of databases are changed by disks and people.

A row left out is not absent: `LeftOut` names it, readers that would delete or repeat something because it is absent
ask for it (`Reader.left_out`), and operators get an event. It stays where it is until its key is written again.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import Row, Select, Table

from homeport.adapters.store import columns
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.errors import HomeportError
from homeport.ports import LeftOut

T = TypeVar("T")

_TYPES: Final[dict[type, type]] = {
    columns.Words: str,
    columns.Bytes: bytes,
    columns.Flag: bool,
    columns.MomentColumn: datetime,
}
WHY_MAX: Final = 200

Build = Callable[[Row[Any]], T]


async def records(connection: SqlConnection, query: Select[Any], build: Build[T], table: Table) -> list[T]:
    """The records of a query on the table, without the rows that cannot be read."""
    return keep(connection, await connection.rows(query), build, table)


async def record(connection: SqlConnection, query: Select[Any], build: Build[T], table: Table) -> T | None:
    """The first record; None where there is none that can be read."""
    row = await connection.first(query)
    return None if row is None else next(iter(keep(connection, [row], build, table)), None)


async def sound_rows(connection: SqlConnection, query: Select[Any], table: Table) -> list[Row[Any]]:
    """Rows with values of the right types, for those who only need keys and numbers."""
    return await records(connection, query, lambda row: row, table)


def keep(connection: SqlConnection, rows: Sequence[Row[Any]], build: Build[T], table: Table) -> list[T]:
    found: list[T] = []
    good = _good_types(rows[0], table) if rows else set()
    for row in rows:
        try:
            _check(row, table, good)
            found.append(build(row))
        except Exception as error:  # noqa: BLE001 - whatever a row raises is a problem of this row
            connection.leave_out(LeftOut(table.name, _key(row, table), _why(error)))
    return found


_GOOD: Final[dict[tuple[str, tuple[str, ...]], set[tuple[type, ...]]]] = {}
"""For each table and selection of its columns: combinations of types that were found right."""


def check(row: Row[Any], table: Table) -> None:
    """Raises ValueError for a value that its column cannot have."""
    _check(row, table, _good_types(row, table))


def _good_types(row: Row[Any], table: Table) -> set[tuple[type, ...]]:
    """For all rows of one query: to ask a row for its columns takes longer than to look at its values."""
    return _GOOD.setdefault((table.name, row._fields), set())


def _check(row: Row[Any], table: Table, good: set[tuple[type, ...]]) -> None:
    types = tuple(map(type, row))
    if types not in good:
        for name, value in row._mapping.items():
            _check_type(name, value, table)
        good.add(types)
    if not is_text("".join([value for value in row if type(value) is str])):
        raise ValueError("it has characters that no text here has")
    numbers = [value for value in row if type(value) is int]
    if numbers and not (min(numbers) >= 0 and max(numbers) < columns.POSITION_MAX):
        raise ValueError("it has a number that nothing here counts to")


def _check_type(name: str, value: object, table: Table) -> None:
    column = table.c.get(name)
    if column is None or (value is None and column.nullable):
        return
    wanted = _TYPES.get(type(column.type), int)
    if type(value) is not wanted:
        raise ValueError(f"{name} is {type(value).__name__} instead of {wanted.__name__}")


def is_text(value: str) -> bool:
    """Whether `columns.storable` left it as it is."""
    return "\0" not in value and (value.isascii() or columns.storable(value) == value)


def _key(row: Row[Any], table: Table) -> tuple[str, ...]:
    """Readable in a log and a message, whatever it is."""
    shown = [row._mapping.get(column.name) for column in table.primary_key.columns]
    return tuple(columns.storable(each if isinstance(each, str) else repr(each))[:WHY_MAX] for each in shown)


def _why(error: Exception) -> str:
    """Without the content, which may be secret."""
    if isinstance(error, HomeportError | TypeError | ValueError) and not isinstance(error, UnicodeError):
        return columns.storable(str(error))[:WHY_MAX]
    return type(error).__name__
