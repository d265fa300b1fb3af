"""Write locks: one process per SQLite file, any number on PostgreSQL.

The first release counted event ids in memory and takes PostgreSQL's lock exclusively. This one takes it shared, so
that the two never run together.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
from sqlalchemy import text

from homeport.adapters.store.databases.async_engine import AsyncConnection
from homeport.errors import Refused

_HINT: Final = "Stop that process first, or choose another folder with --data (or database with --store)."
_KEY: Final = int.from_bytes(b"homeport")
"""Advisory locks are numbers; this one is our name in ASCII."""

_TRY_LOCK: Final = text("SELECT pg_try_advisory_lock_shared(:key)")
_MIGRATION: Final = text("SELECT pg_advisory_xact_lock(:key)")
_HOLDER: Final = text(
    "SELECT a.application_name, a.pid, coalesce(host(a.client_addr), 'this machine')"
    " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND l.classid::bigint = :high AND l.objid::bigint = :low"
)


@contextmanager
def hold_file(database: Path) -> Iterator[None]:
    """Holds `<database>.lock`. The kernel releases it when the process ends, however it ends."""
    path = database.with_name(database.name + ".lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(
            f"The database {database} cannot be opened for writing: {error.strerror}.",
            hint="Check that the user running Homeport owns the folder.",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            raise Refused(f"The database {database} is in use by process {holder}.", hint=_HINT) from error
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


async def join_session(connection: AsyncConnection, *, wait_seconds: float) -> None:
    """Makes this PostgreSQL session one of the writers; the lock is released with the connection."""
    deadline = anyio.current_time() + wait_seconds
    while not await connection.scalar(_TRY_LOCK, {"key": _KEY}):
        if anyio.current_time() >= deadline:
            raise Refused(await _who_holds_it(connection), hint=_HINT)
        await anyio.sleep(0.1)


async def hold_migration(connection: AsyncConnection) -> None:
    """Held until the transaction ends: of several processes that start at once, one migrates the database."""
    await connection.execute(_MIGRATION, {"key": _KEY + 1})


async def _who_holds_it(connection: AsyncConnection) -> str:
    found = await connection.execute(_HOLDER, {"high": _KEY >> 32, "low": _KEY & 0xFFFFFFFF})
    holder = found.first()
    name = connection.database
    if holder is None:
        return f'The database "{name}" is in use by an older version of Homeport.'
    session = f"{holder[0]} at {holder[2]} (PostgreSQL session {holder[1]})"
    return f'The database "{name}" is in use by an older version of Homeport: {session}.'
