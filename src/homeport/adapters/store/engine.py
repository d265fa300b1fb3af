"""From a URL to an engine: which database, which driver, and how each must be set up to be durable."""

import importlib.util
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, NullPool, event, make_url
from sqlalchemy.engine import Connection as SyncConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from homeport.adapters.store.sqlite_writer import connect_writer
from homeport.errors import InvalidInput, Refused

BUSY_SECONDS: Final = 5
"""How long SQLite waits for a program that looks into the file, a backup say."""


_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    f"busy_timeout = {BUSY_SECONDS * 1000}",
    "journal_size_limit = 67108864",
)


def parse_address(url: str) -> URL:
    """`sqlite:////path/file`, `postgresql://user@host/name`, or a plain path, which means SQLite."""
    if "://" not in url:
        return URL.create("sqlite+aiosqlite", database=str(Path(url).absolute()))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InvalidInput(
            "The address of the database is not a URL.", hint="Use a path, sqlite:////path or postgresql://host/name."
        ) from error
    match parsed.drivername.partition("+")[0]:
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            return parsed.set(drivername="sqlite+aiosqlite", database=str(Path(parsed.database).absolute()))
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+asyncpg")
        case "sqlite":
            raise InvalidInput("A database in memory would lose everything; give SQLite the path of a file.")
        case other:
            raise InvalidInput(f'There is no support for the database "{other}".', hint="Use sqlite or postgresql.")


@dataclass(frozen=True, slots=True)
class Engines:
    writer: AsyncEngine
    readers: AsyncEngine

    async def dispose(self) -> None:
        await self.readers.dispose()
        await self.writer.dispose()


def create_engines(address: URL, *, readers_max: int) -> Engines:
    """No driver begins a transaction of its own accord: SQLite's does so by rules that no snapshot survives."""
    pool = {"pool_size": readers_max, "max_overflow": 0, "pool_timeout": 10}
    if address.get_backend_name() == "postgresql":
        arguments = _postgresql_arguments()
        readers = create_async_engine(address, connect_args=arguments, **pool)
        # All queries of one reader see the same moment. SQLite gives that by itself.
        readers = readers.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        writer = create_async_engine(
            address, connect_args=arguments, poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        return Engines(writer, readers)

    path = str(address.database)
    writer = create_async_engine(
        address, async_creator=lambda: connect_writer(path, busy_seconds=BUSY_SECONDS), poolclass=NullPool
    )
    arguments = {"timeout": BUSY_SECONDS, "isolation_level": None}
    readers = create_async_engine(address, connect_args=arguments, **pool)
    for engine in (writer, readers):
        event.listen(engine.sync_engine, "connect", _set_pragmas)
    # The writer says for itself when its transactions begin.
    event.listen(readers.sync_engine, "begin", _begin)
    return Engines(writer, readers)


def _postgresql_arguments() -> dict[str, Any]:
    if importlib.util.find_spec("asyncpg") is None:
        raise Refused("The driver for PostgreSQL is not installed.", hint="pip install 'homeport[cloud]'")
    settings = {
        "application_name": f"homeport on {socket.gethostname()}, process {os.getpid()}"[:63],
        # A writer whose machine has vanished must not hold its lock for the two hours that TCP would allow.
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        # Our queries are short; compiling them costs more than running them.
        "jit": "off",
    }
    return {"server_settings": settings, "timeout": 10, "command_timeout": 30}


def _set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: SyncConnection) -> None:
    connection.exec_driver_sql("BEGIN")
