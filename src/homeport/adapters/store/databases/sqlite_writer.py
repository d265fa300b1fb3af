"""The writer's connection to SQLite, with the interface that SQLAlchemy expects of aiosqlite.

aiosqlite hands every call to a thread: 70 µs here, four times for each statement, where the statement itself takes
two. The writer holds the write lock once its transaction has begun, so its statements never block and run on the
event loop. What can block runs in a thread: committing (for the disk), long lists, and beginning, but only where
another program has the lock.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from anyio import to_thread

T = TypeVar("T")

_WAITS: Final = ("BEGIN", "COMMIT", "PRAGMA")
_DO_NOT_WAIT: Final = "PRAGMA busy_timeout = 0"
_IN_PLACE_MAX: Final = 50
"""Longer lists of parameters take more than a millisecond and would block the event loop."""


class WriterConnection:
    def __init__(self, connection: sqlite3.Connection, *, busy_seconds: float) -> None:
        self._connection: sqlite3.Connection | None = connection
        self._wait = f"PRAGMA busy_timeout = {int(1000 * busy_seconds)}"

    @property
    def _conn(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.OperationalError("no active connection")
        return self._connection

    def cursor(self) -> "WriterCursor":
        return WriterCursor(self._conn)

    async def execute(self, statement: str) -> None:
        if statement.startswith("BEGIN") and self._has_begun(statement):
            return
        if statement.startswith(_WAITS):
            await in_thread(self._conn.execute, statement)
        else:
            self._conn.execute(statement)

    def _has_begun(self, statement: str) -> bool:
        """Begins the transaction if nobody else has the lock. Handing this to a thread would cost more than all else
        that a small commit does on the event loop."""
        connection = self._conn
        connection.execute(_DO_NOT_WAIT)
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # the low byte is the kind of error
                raise
            return False
        finally:
            connection.execute(self._wait)
        return True

    async def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """The number of changed rows."""
        if len(rows) > _IN_PLACE_MAX:
            return (await in_thread(self._conn.executemany, statement, rows)).rowcount
        return self._conn.executemany(statement, rows).rowcount

    async def commit(self) -> None:
        await in_thread(self._conn.commit)

    async def rollback(self) -> None:
        await in_thread(self._conn.rollback)

    async def create_function(self, *arguments: Any, **options: Any) -> None:
        self._conn.create_function(*arguments, **options)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The last connection to close checkpoints the WAL into the file, which may take long.
            await in_thread(connection.close)

    def stop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class WriterCursor:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    async def __aenter__(self) -> "WriterCursor":
        return self

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        if statement.startswith(_WAITS):
            await in_thread(self._cursor.execute, statement, parameters)
        else:
            self._cursor.execute(statement, parameters)

    async def executemany(self, statement: str, parameters: Sequence[Sequence[Any]]) -> None:
        if len(parameters) > _IN_PLACE_MAX:
            await in_thread(self._cursor.executemany, statement, parameters)
        else:
            self._cursor.executemany(statement, parameters)

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    async def close(self) -> None:
        self._cursor.close()


async def connect_writer(path: str, *, busy_seconds: float) -> WriterConnection:
    open_file = partial(sqlite3.connect, path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    return WriterConnection(await in_thread(open_file), busy_seconds=busy_seconds)


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    return await to_thread.run_sync(call, *arguments)
