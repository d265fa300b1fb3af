"""Opens a store: lock, migrate, start the writer. The one public name of this package is `open_store`."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import anyio
from sqlalchemy import URL

from homeport.adapters.bus.notifications import EVENTS
from homeport.adapters.store.commit.appends import create_counters
from homeport.adapters.store.commit.group import GroupCommit
from homeport.adapters.store.databases.async_engine import AsyncEngine
from homeport.adapters.store.databases.engine import create_engines, parse_address
from homeport.adapters.store.databases.errors import LEFT_OUT_MAX, SqlConnection, UntornConnection, translated
from homeport.adapters.store.databases.locks import hold_file, hold_migration, join_session
from homeport.adapters.store.databases.migrate import migrate
from homeport.adapters.store.reader import SqlReader
from homeport.core.events import row_left_out_event
from homeport.core.model.event import NewEvent
from homeport.errors import HomeportError, Refused, TransientError
from homeport.log import get_log
from homeport.ports import Bus, LeftOut, Message, Reader, Store, Transaction

T = TypeVar("T")

log = get_log("homeport.store")


@asynccontextmanager
async def open_store(
    url: str,
    *,
    readers_max: int = 4,
    batch_max: int = 200,
    queue_max: int = 1_000,
    limit_seconds: float = 30.0,
    lock_wait_seconds: float = 3.0,
    bus: Bus | None = None,
    look_seconds: float = 5.0,
) -> AsyncIterator[Store]:
    """The store at `url`: `sqlite:////path` or a path, with this process as its only writer, or `postgresql://…`,
    where other processes may write as well.

    `readers_max` reads run at once. A commit takes up to `batch_max` works; `queue_max` may be queued before callers
    have to wait; a commit that has not ended after `limit_seconds` has failed. Events of other processes are noticed
    through the `bus`, and every `look_seconds` without it. Raises Refused when another process has the file open,
    TransientError when the database cannot be reached.
    """
    address = parse_address(url)
    is_shared = address.get_backend_name() == "postgresql"
    with _hold(address):
        engines = create_engines(address, readers_max=readers_max)

        left_out = LeftOutRows()

        async def connect() -> SqlConnection:
            connection = await _connect_writer(engines.writer, lock_wait_seconds=lock_wait_seconds)
            connection.on_left_out = left_out.add
            return connection

        group = GroupCommit(connect, batch_max=batch_max, queue_max=queue_max, limit_seconds=limit_seconds)
        try:
            await group.start()
            store = SqlStore(engines.readers, group, left_out)
            looks = EventPolling(store, group.heard_of, look_seconds)
            if bus is not None:
                bus.subscribe(EVENTS, looks.heard, on_gap=looks.now)
            async with _running(group, looks if is_shared else None):
                yield store
        finally:
            with anyio.move_on_after(5, shield=True):
                await group.close()
                await engines.dispose()


class LeftOutRows:
    """Rows that could not be read: each is logged once, and reported as an event."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, tuple[str, ...]]] = set()
        self.new: list[LeftOut] = []

    def add(self, row: LeftOut) -> None:
        if (row.table, row.key) in self._seen or len(self._seen) >= LEFT_OUT_MAX:
            return
        self._seen.add((row.table, row.key))
        self.new.append(row)
        log.error("row left out", table=row.table, key="/".join(row.key), why=row.why)

    def take(self) -> list[NewEvent]:
        taken, self.new = self.new, []
        return [row_left_out_event(row.table, row.key, row.why, datetime.now(UTC)) for row in taken]


class SqlStore:
    def __init__(self, readers: AsyncEngine, group: GroupCommit, left_out: LeftOutRows) -> None:
        self._readers = readers
        self._group = group
        self._left_out = left_out

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        result = await self._group.write(work)
        await self._report()
        return result

    async def _report(self) -> None:
        """Only new ones, so a role writes nothing here while its database is sound."""
        if self._left_out.new:
            events = self._left_out.take()
            try:
                await self._group.write(lambda tx: tx.append_events(events))
            except HomeportError as error:
                log.warning("event about an unreadable row lost", why=str(error))

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        # A connection that is cancelled while it is opened cannot be closed cleanly. The pool bounds the wait.
        with translated(), anyio.CancelScope(shield=True):
            raw = await self._readers.connect()
        try:
            yield SqlReader(UntornConnection(raw, self._left_out.add))
        finally:
            with anyio.move_on_after(5, shield=True), translated():
                await raw.close()
        await self._report()

    async def wait_for_event(self, after: int) -> int:
        return await self._group.wait_for_event(after)


def _hold(address: URL) -> AbstractContextManager[None]:
    if address.get_backend_name() == "postgresql":
        return nullcontext()
    database = Path(str(address.database))
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"The folder {database.parent} cannot be made: {error.strerror}.") from error
    _keep_private(database)
    return hold_file(database)


def _keep_private(database: Path) -> None:
    """Token hashes, sealed secrets and deployment files must not be readable by others. SQLite gives its other files
    the mode that it finds here. Errors are ignored: opening the database reports them better."""
    with suppress(OSError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for path in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))):
            if path.exists() and path.stat().st_mode & 0o077:
                path.chmod(0o600)


async def _connect_writer(engine: AsyncEngine, *, lock_wait_seconds: float) -> SqlConnection:
    with translated():
        connection = SqlConnection(await engine.connect())
    try:
        with translated():
            if connection.is_postgresql:
                await join_session(connection.raw, wait_seconds=lock_wait_seconds)
            await connection.begin()
            if connection.is_postgresql:
                await hold_migration(connection.raw)
            await connection.raw.run_sync(migrate)
            await create_counters(connection)
            await connection.command("COMMIT")
    except BaseException:
        with anyio.move_on_after(5, shield=True):
            await connection.raw.invalidate()
            await connection.raw.close()
        raise
    return connection


class EventPolling:
    """Notices events that other processes have written: when the bus reports them, and by polling."""

    def __init__(self, store: SqlStore, heard_of: Callable[[int], None], seconds: float) -> None:
        self._store = store
        self._heard_of = heard_of
        self._seconds = seconds
        self._is_due = anyio.Event()
        self.scope = anyio.CancelScope()

    def heard(self, message: Message) -> None:
        last = message.get("last")
        if isinstance(last, int):
            self._heard_of(last)

    def now(self) -> None:
        self._is_due.set()

    async def run(self) -> None:
        with self.scope:
            while True:
                with anyio.move_on_after(self._seconds):
                    await self._is_due.wait()
                self._is_due = anyio.Event()
                await self._look()

    async def _look(self) -> None:
        try:
            async with self._store.read() as reader:
                self._heard_of(await reader.last_event_id())
        except TransientError as error:
            log.warning("event log read failed, will retry", why=str(error))


@asynccontextmanager
async def _running(group: GroupCommit, looks: EventPolling | None) -> AsyncIterator[None]:
    """Runs the writer until after the caller's block: what the end of the block has to write is written, also when
    the block was cancelled. An exception of the block is raised as it is, not in a group."""
    failure: Exception | None = None

    async def write() -> None:
        with anyio.CancelScope(shield=True):
            await group.run()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        if looks is not None:
            tasks.start_soon(looks.run)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again below
            failure = error
        finally:
            if looks is not None:
                looks.scope.cancel()
            group.finish()
    if failure is not None:
        raise failure
