"""Opening a store: lock, migrate, start the writer. The one public name of this package is `open_store`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import anyio
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from homeport.adapters.store.border import Connection, UntornConnection, translated
from homeport.adapters.store.engine import create_engines, parse_address
from homeport.adapters.store.group import GroupCommit
from homeport.adapters.store.locks import hold_file, hold_session
from homeport.adapters.store.migrate import migrate
from homeport.adapters.store.reader import SqlReader
from homeport.errors import Refused
from homeport.ports import Reader, Store, Transaction

T = TypeVar("T")


@asynccontextmanager
async def open_store(
    url: str,
    *,
    readers_max: int = 4,
    batch_max: int = 200,
    queue_max: int = 1_000,
    limit_seconds: float = 30.0,
    lock_wait_seconds: float = 3.0,
) -> AsyncIterator[Store]:
    """The store at `url` (`sqlite:////path`, `postgresql://…`, or a path), with this process as its only writer.

    `readers_max` reads run at once. A commit takes up to `batch_max` works; `queue_max` may wait before callers
    are held back; a commit that has not ended after `limit_seconds` has failed. Raises Refused when somebody else
    writes to the database, TransientError when it cannot be reached.
    """
    address = parse_address(url)
    with _hold(address):
        engines = create_engines(address, readers_max=readers_max)

        async def connect() -> Connection:
            return await _connect_writer(engines.writer, lock_wait_seconds=lock_wait_seconds)

        group = GroupCommit(connect, batch_max=batch_max, queue_max=queue_max, limit_seconds=limit_seconds)
        try:
            await group.start()
            async with _running(group):
                yield SqlStore(engines.readers, group)
        finally:
            with anyio.move_on_after(5, shield=True):
                await group.close()
                await engines.dispose()


class SqlStore:
    def __init__(self, readers: AsyncEngine, group: GroupCommit) -> None:
        self._readers = readers
        self._group = group

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._group.write(work)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        # A connection that is torn while it is made cannot be closed in order. The pool bounds the wait.
        with translated(), anyio.CancelScope(shield=True):
            raw = await self._readers.connect()
        try:
            yield SqlReader(UntornConnection(raw))
        finally:
            with anyio.move_on_after(5, shield=True), translated():
                await raw.close()

    async def wait_for_event(self, after: int) -> None:
        await self._group.wait_for_event(after)


def _hold(address: URL) -> AbstractContextManager[None]:
    if address.get_backend_name() == "postgresql":
        return nullcontext()
    database = Path(str(address.database))
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"The folder {database.parent} cannot be made: {error.strerror}.") from error
    return hold_file(database)


async def _connect_writer(engine: AsyncEngine, *, lock_wait_seconds: float) -> Connection:
    with translated():
        connection = Connection(await engine.connect())
    try:
        with translated():
            if connection.is_postgresql:
                await hold_session(connection.raw, wait_seconds=lock_wait_seconds)
            await connection.begin()
            await connection.raw.run_sync(migrate)
            await connection.command("COMMIT")
    except BaseException:
        with anyio.move_on_after(5, shield=True):
            await connection.raw.invalidate()
            await connection.raw.close()
        raise
    return connection


@asynccontextmanager
async def _running(group: GroupCommit) -> AsyncIterator[None]:
    """The writer runs beside the caller's block. What the block raises comes out as it is, not in a group."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(group.run)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again below
            failure = error
        group.finish()
    if failure is not None:
        raise failure
