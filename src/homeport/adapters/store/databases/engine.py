"""Creates an engine from a URL: selects database and driver, and configures them to be durable."""

import importlib.util
import os
import socket
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, NullPool, event, make_url
from sqlalchemy.engine import Connection as SyncConnection
from sqlalchemy.exc import ArgumentError

from homeport.adapters.store.databases.async_engine import AsyncEngine, create_async_engine
from homeport.adapters.store.databases.sqlite_writer import connect_writer
from homeport.errors import InvalidInput, Refused
from homeport.lazy_dataclass import dataclass

BUSY_SECONDS: Final = 5
"""How long SQLite waits for another program that has the file open, such as a backup."""


IDLE_SECONDS: Final = 15
"""How long a writer may idle inside a transaction. Others wait for it, so PostgreSQL ends one whose process was
stopped; works wait only for the database, so a running one never idles that long."""

CACHE_KIB: Final = 512
"""Per connection, five for a database. With SQLite's default of 2 MB the ten of `homeport up` grow to twenty with the
database; the operating system caches the pages, too."""

SPILL_PAGES: Final = 4_000
"""16 MB: how far the cache may grow before changed pages of a transaction are written ahead of its commit. A group
commit changes more than `CACHE_KIB`; with SQLite's default its pages are written, and read again, several times."""

_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    f"busy_timeout = {BUSY_SECONDS * 1000}",
    "journal_size_limit = 67108864",
    f"cache_size = -{CACHE_KIB}",
    f"cache_spill = {SPILL_PAGES}",
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
    """No driver begins transactions by itself: SQLite's does so by rules that break snapshots."""
    pool: dict[str, Any] = {"pool_size": readers_max, "max_overflow": 0, "pool_timeout": 10}
    # The connection that was used last is used next: one cache that fills and hits, not four that fill in turns.
    pool["pool_use_lifo"] = True
    if address.get_backend_name() == "postgresql":
        # All queries of one reader see the same snapshot. SQLite does that by default.
        one_moment = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        arguments = _postgresql_arguments()
        readers = create_async_engine(address, connect_args=arguments, execution_options=one_moment, **pool)
        arguments = _postgresql_arguments()
        arguments["server_settings"] |= {"idle_in_transaction_session_timeout": str(IDLE_SECONDS * 1000)}
        writer = create_async_engine(
            address, connect_args=arguments, poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        return Engines(writer, readers)

    path = str(address.database)
    _make_private(Path(path))
    writer = create_async_engine(
        address, connect=lambda: connect_writer(path, busy_seconds=BUSY_SECONDS), poolclass=NullPool
    )
    arguments = {"timeout": BUSY_SECONDS, "isolation_level": None}
    readers = create_async_engine(address, connect_args=arguments, **pool)
    for engine in (writer, readers):
        event.listen(engine.sync, "connect", _set_pragmas)
    # The writer begins its transactions explicitly.
    event.listen(readers.sync, "begin", _begin)
    return Engines(writer, readers)


def create_shared_engine(address: URL, *, connections_max: int) -> AsyncEngine:
    """For other users of the same PostgreSQL database (bus, leases): each statement is its own transaction."""
    return create_async_engine(
        address,
        connect_args=_postgresql_arguments(),
        isolation_level="AUTOCOMMIT",
        pool_size=connections_max,
        max_overflow=0,
        pool_timeout=5,
        pool_pre_ping=True,
    )


def _make_private(path: Path) -> None:
    """Hashes, sealed values and the audit trail are for the owner alone; SQLite copies the mode to its other
    files."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o600)
    except OSError:
        return  # reported where the database is opened


def _postgresql_arguments() -> dict[str, Any]:
    if importlib.util.find_spec("asyncpg") is None:
        raise Refused("The driver for PostgreSQL is not installed.", hint="pip install 'homeport[cloud]'")
    settings = {
        "application_name": f"homeport on {socket.gethostname()}, process {os.getpid()}"[:63],
        # A writer whose machine has vanished must not hold its lock for TCP's default of two hours.
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
