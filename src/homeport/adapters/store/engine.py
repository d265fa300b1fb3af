"""From a URL to an engine: which database, which driver, and how each must be set up to be durable."""

import importlib.util
import os
import socket
from pathlib import Path
from typing import Any

from sqlalchemy import URL, event, make_url
from sqlalchemy.engine import Connection as SyncConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from homeport.errors import InvalidInput, Refused

BUSY_SECONDS = 5
"""How long SQLite waits for a program that looks into the file, a backup say."""


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


def create_engine(address: URL, *, connections_max: int) -> AsyncEngine:
    pool = {"pool_size": connections_max, "max_overflow": 0, "pool_timeout": 10}
    if address.get_backend_name() == "postgresql":
        return _create_postgresql(address, pool)
    return _create_sqlite(address, pool)


def _create_postgresql(address: URL, pool: dict[str, Any]) -> AsyncEngine:
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
    arguments = {"server_settings": settings, "timeout": 10, "command_timeout": 30}
    return create_async_engine(address, connect_args=arguments, **pool)


def _create_sqlite(address: URL, pool: dict[str, Any]) -> AsyncEngine:
    engine = create_async_engine(address, connect_args={"timeout": BUSY_SECONDS}, **pool)

    @event.listens_for(engine.sync_engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        # The driver would begin transactions by its own rules; `begin` below does it by ours.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            f"busy_timeout = {BUSY_SECONDS * 1000}",
            "journal_size_limit = 67108864",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: SyncConnection) -> None:
        is_writer = connection.get_execution_options().get("is_writer", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine
