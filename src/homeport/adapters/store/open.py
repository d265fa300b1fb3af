"""Opening a store: lock, migrate, start the writer. The one public name of this package is `open_store`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import anyio
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from homeport.adapters.store.border import Connection, translated
from homeport.adapters.store.engine import create_engine, parse_address
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
        engine = create_engine(address, connections_max=readers_max + 1)

        async def connect() -> AsyncConnection:
            return await _connect_writer(engine, lock_wait_seconds=lock_wait_seconds)

        group = GroupCommit(connect, batch_max=batch_max, queue_max=queue_max, limit_seconds=limit_seconds)
        try:
            await group.start()
            async with _running(group):
                yield SqlStore(engine, group)
        finally:
            with anyio.move_on_after(5, shield=True):
                await group.close()
                await engine.dispose()


class SqlStore:
    def __init__(self, engine: AsyncEngine, group: GroupCommit) -> None:
        self._readers = engine
        if engine.dialect.name == "postgresql":
            # All queries of one reader see the same moment. SQLite gives that by itself.
            self._readers = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._group = group

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._group.write(work)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        with translated():
            raw = await self._readers.connect()
        try:
            yield SqlReader(Connection(raw))
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


async def _connect_writer(engine: AsyncEngine, *, lock_wait_seconds: float) -> AsyncConnection:
    raw = await engine.connect()
    try:
        raw = await raw.execution_options(is_writer=True)
        if engine.dialect.name == "postgresql":
            await hold_session(raw, wait_seconds=lock_wait_seconds)
        async with raw.begin():
            await raw.run_sync(migrate)
    except BaseException:
        with anyio.move_on_after(5, shield=True):
            await raw.invalidate()
            await raw.close()
        raise
    return raw


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
