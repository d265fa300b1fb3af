"""Translates foreign errors: no exception of SQLAlchemy, sqlite3 or asyncpg leaves this package.

`SqlConnection` is the only interface to a database that the queries use.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import anyio
from sqlalchemy import ARRAY, Executable, Row, Table, UpdateBase
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.types import TypeEngine

from homeport.adapters.files.disk import disk_problem
from homeport.adapters.store.columns import bound
from homeport.adapters.store.databases.async_engine import AsyncConnection, Parameters, Result
from homeport.errors import (
    Conflict,
    HomeportError,
    InvariantViolated,
    PermanentError,
    Refused,
    StorageFull,
    TransientError,
)
from homeport.ports import LeftOut

LEFT_OUT_MAX: Final = 10_000
"""How many rows a connection remembers as left out; beyond that there is no telling them apart."""

NEW: Final = "new_"
"""Before a parameter's name: the new value of the column of that name. SQLAlchemy keeps the name alone for itself."""

Kinds = Sequence[tuple[str, TypeEngine[Any]]]
"""The name of each value that the driver takes from a row, in its order, and the type of its column."""


class SqlConnection:
    def __init__(self, raw: AsyncConnection, on_left_out: Callable[[LeftOut], None] = lambda _: None) -> None:
        self.raw = raw
        self.left_out: dict[tuple[str, tuple[str, ...]], LeftOut] = {}
        self.on_left_out = on_left_out
        self.is_postgresql = raw.dialect.name == "postgresql"
        self._driver: Any = None
        self._compiled: dict[UpdateBase, tuple[str, Kinds]] = {}

    async def rows(self, statement: Executable, parameters: Parameters | None = None) -> Sequence[Row[Any]]:
        return (await self._execute(statement, parameters)).fetchall()

    async def first(self, statement: Executable) -> Row[Any] | None:
        return (await self._execute(statement, None)).first()

    async def run(self, statement: Executable, parameters: Parameters | None = None) -> int:
        """The number of affected rows. PostgreSQL's driver does not report it for a list of parameters."""
        return (await self._execute(statement, parameters)).rowcount

    def leave_out(self, row: LeftOut) -> None:
        """A row could not be read: it is remembered for `Reader.left_out`, and reported."""
        if len(self.left_out) < LEFT_OUT_MAX:
            self.left_out[row.table, row.key] = row
        self.on_left_out(row)

    async def begin(self) -> None:
        """SQLite must take the write lock at once: taken later it may fail instead of waiting."""
        await self.command("BEGIN" if self.is_postgresql else "BEGIN IMMEDIATE")

    async def command(self, *statements: str) -> None:
        """Runs plain statements in the driver itself, in one round trip. The writer begins and ends its transactions
        this way, because SQLAlchemy would take longer than the database."""
        with translated():
            if self._driver is None:
                self._driver = await self.raw.driver()
            try:
                if self.is_postgresql:
                    await self._driver.execute("; ".join(statements))
                else:
                    for statement in statements:
                        await self._driver.execute(statement)
            except sqlite3.Error as error:
                raise _from_sqlite(error) from error
            except _postgresql_errors() as error:
                raise _from_postgresql(error, lost=False) from error

    async def append(
        self, table: Table, rows: Sequence[Mapping[str, Any]], *, or_nothing: bool = False
    ) -> int | None:
        """Inserts rows that all have the same columns, in the driver itself: for many small rows SQLAlchemy's work on
        each value takes longer than the database. Returns how many were inserted, where the driver counts them. With
        `or_nothing`, which SQLite has, those are left out whose key already exists."""
        names = tuple(rows[0])
        kinds = [(name, table.c[name].type) for name in names]
        if not self.is_postgresql:
            statement = _insertion(table.name, names, " ON CONFLICT DO NOTHING" if or_nothing else "")
            return await self._in_driver(statement, kinds, rows)
        with translated():
            if self._driver is None:
                self._driver = await self.raw.driver()
            try:
                records = self._converted(kinds, rows)
                await self._driver.copy_records_to_table(table.name, records=records, columns=names)
            except _postgresql_errors() as error:
                raise _from_postgresql(error, lost=False) from error
        return None

    async def run_each(self, statement: UpdateBase, rows: Sequence[Mapping[str, Any]]) -> int:
        """On SQLite, runs a statement for each row, in the driver itself as in `append`. A row has a value for each
        of its parameters. Returns how many rows of the table have changed."""
        return await self._in_driver(*self._compile(statement), rows)

    async def run_with_arrays(self, statement: UpdateBase, rows: Sequence[Mapping[str, Any]]) -> int:
        """On PostgreSQL, runs a statement whose parameters are arrays, with a value of each row, in the driver itself
        as in `append`. Returns how many rows of the table have changed."""
        sql, kinds = self._compile(statement)
        with translated():
            if self._driver is None:
                self._driver = await self.raw.driver()
            arrays = self._columns([(name, cast(ARRAY[Any], kind).item_type) for name, kind in kinds], rows)
            try:
                done = await self._driver.execute(sql, *arrays)
            except _postgresql_errors() as error:
                raise _from_postgresql(error, lost=False) from error
        return int(done.rpartition(" ")[2])

    def _compile(self, statement: UpdateBase) -> tuple[str, Kinds]:
        if statement not in self._compiled:
            compiled: Any = statement.compile(dialect=self.raw.dialect)
            kinds = [(name.removeprefix(NEW), compiled.binds[name].type) for name in compiled.positiontup]
            self._compiled[statement] = str(compiled), kinds
        return self._compiled[statement]

    async def _in_driver(self, statement: str, kinds: Kinds, rows: Sequence[Mapping[str, Any]]) -> int:
        with translated():
            if self._driver is None:
                self._driver = await self.raw.driver()
            try:
                return int(await self._driver.executemany(statement, self._converted(kinds, rows)))
            except sqlite3.Error as error:
                raise _from_sqlite(error) from error

    def _converted(self, kinds: Kinds, rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        return list(zip(*self._columns(kinds, rows), strict=True))

    def _columns(self, kinds: Kinds, rows: Sequence[Mapping[str, Any]]) -> list[Sequence[Any]]:
        return [bound(kind, [row[name] for row in rows], self.raw.dialect) for name, kind in kinds]

    async def _execute(self, statement: Executable, parameters: Parameters | None) -> Result:
        with translated():
            try:
                return await self.raw.execute(statement, parameters)
            except OperationalError as error:
                if not str(error.orig).startswith("Could not decode to UTF-8"):
                    raise
            # A text that is not UTF-8 fails the whole query. From now on such bytes become lone surrogates, which no
            # text of ours has, and cost their row alone. It costs time for each text, so it is not the default.
            driver = await self.raw.driver()
            driver._conn.text_factory = _decode
            return await self.raw.execute(statement, parameters)


def _decode(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


class UntornConnection(SqlConnection):
    """For readers. A query interrupted by cancellation costs the pool its connection, so it is shielded."""

    async def _execute(self, statement: Executable, parameters: Parameters | None) -> Result:
        with anyio.CancelScope(shield=True):
            result = await super()._execute(statement, parameters)
        return result  # noqa: RET504 - a return inside would hide from the checker that the scope never swallows


def _postgresql_errors() -> tuple[type[Exception], ...]:
    """Those of asyncpg, where it is in use; it may not even be installed. The last one is what it raises when the
    connection is lost while a response is being read."""
    driver = sys.modules.get("asyncpg")
    return () if driver is None else (driver.PostgresError, driver.InterfaceError, driver.InternalClientError)


def _insertion(table: str, names: Sequence[str], ending: str) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return f'INSERT INTO "{table}" ({columns}) VALUES ({", ".join("?" * len(names))}){ending}'


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except StatementError as error:
        raise _translate(error) from error
    except PoolTimeout as error:
        raise TransientError("All connections to the database are busy.") from error
    except SQLAlchemyError as error:
        raise InvariantViolated(f"The database toolkit was used wrongly: {error}") from error
    except OSError as error:
        if (found := disk_problem(error, "the database")) is not None:
            raise found from error
        raise TransientError(f"The database cannot be reached: {error.strerror or error}.") from error


def _translate(error: StatementError) -> HomeportError:
    origin = error.orig
    if isinstance(origin, HomeportError):
        return origin
    if isinstance(origin, sqlite3.Error):
        return _from_sqlite(origin)
    if isinstance(error, DBAPIError):
        return _from_postgresql(origin, lost=error.connection_invalidated)
    return InvariantViolated(f"A value does not fit its column: {origin}")


def _from_sqlite(error: sqlite3.Error) -> HomeportError:  # noqa: PLR0911 - one for each kind
    name = getattr(error, "sqlite_errorname", "")
    match name.removeprefix("SQLITE_").split("_")[0]:
        case "FULL":
            return _disk_full()
        case "BUSY" | "LOCKED":
            return TransientError("Another program is holding the database file.")
        case "CONSTRAINT":
            return Conflict(f"The database holds something that contradicts it: {error}.")
        case "NOTADB" | "CORRUPT":
            return PermanentError(
                f"The database file is damaged or not a database: {error}.",
                hint="Move it away, or restore it from a backup; desired state is in Git and is read again.",
            )
        case "READONLY" | "PERM" | "AUTH" | "CANTOPEN":
            return Refused(
                f"The database file cannot be written: {error}.",
                hint="Check that the user running Homeport owns the file and its folder.",
            )
        case "IOERR" | "NOMEM" | "":
            return TransientError(f"The database file cannot be read or written: {error}.")
        case _:
            return InvariantViolated(f"The database refused a statement: {error}")


def _from_postgresql(error: BaseException | None, *, lost: bool) -> HomeportError:  # noqa: PLR0911 - as above
    state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
    words = str(error).split("\n", maxsplit=1)[0].rpartition("'>: ")[2].rstrip(".")
    match state[:2]:
        case "53" if state == "53100":
            return _disk_full()
        case "23":
            return Conflict(f"The database holds something that contradicts it: {words}.")
        case "3D" | "28":
            return Refused(
                f"PostgreSQL does not let us in: {words}.",
                hint="Create the database and its user first, and check the URL.",
            )
        case "42" if state == "42501":
            return Refused(f"PostgreSQL does not allow it: {words}.", hint="Grant the user its own database.")
        case "08" | "40" | "53" | "55" | "57" | "58":
            return TransientError(f"PostgreSQL cannot serve us now: {words}.")
    if lost or not state:
        return TransientError(f"The connection to PostgreSQL was lost: {words}.")
    return InvariantViolated(f"The database refused a statement: {words}")


def _disk_full() -> StorageFull:
    return StorageFull("The disk that holds the database is full; nothing was written.")
