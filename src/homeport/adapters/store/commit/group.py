"""Group commit: many callers, one writer, one commit.

A commit costs the same for one change as for a hundred, so the writer takes all waiting callers into one transaction.
Works run one after the other; one that raises is rolled back alone, and only its caller gets the error. If the commit
itself fails, every caller in it gets a TransientError and nothing of it is stored.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Any, TypeVar, cast

import anyio

from homeport.adapters.bus.notifications import events_moved
from homeport.adapters.store.commit.appends import Appends, Counts, load_counts
from homeport.adapters.store.databases.errors import SqlConnection, translated
from homeport.adapters.store.schema import events
from homeport.adapters.store.transaction import Savepoint, SqlTransaction
from homeport.errors import HomeportError, Refused, StorageFull, StorageReadOnly, TransientError
from homeport.failpoints import Point, passing
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Transaction

T = TypeVar("T")
Work = Callable[[Transaction], Awaitable[T]]

log = get_log(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    work: Work[Any]
    done: anyio.Event = field(default_factory=anyio.Event)
    abandoned: bool = False
    """The caller was cancelled. A work that has not begun is then skipped; a running one continues."""
    result: Any = None
    error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.result, self.error = None, error


class GroupCommit:
    def __init__(
        self,
        connect: Callable[[], Awaitable[SqlConnection]],
        *,
        batch_max: int,
        queue_max: int,
        limit_seconds: float,
    ) -> None:
        self._connect = connect
        self._batch_max = batch_max
        self._limit_seconds = limit_seconds
        self._send, self._receive = anyio.create_memory_object_stream[_Waiting](queue_max)
        self._connection: SqlConnection | None = None
        self._counts: Counts = {}
        self._last_event = 0
        self._moved = anyio.Event()

    # --- for callers ----------------------------------------------------------------------------------------

    async def write(self, work: Work[T]) -> T:
        waiting = _Waiting(work)
        try:
            await self._send.send(waiting)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise TransientError("The store is closed.") from error
        try:
            await waiting.done.wait()
        except BaseException:
            waiting.abandoned = True
            raise
        if waiting.error is not None:
            raise waiting.error
        return cast(T, waiting.result)

    async def wait_for_event(self, after: int) -> int:
        while self._last_event <= after:
            await self._moved.wait()
        return self._last_event

    def heard_of(self, last_event: int) -> None:
        """An event with this id is in the log, written by any process."""
        if last_event > self._last_event:
            self._last_event = last_event
            self._moved.set()
            self._moved = anyio.Event()

    # --- the writer -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects, so that database problems are reported before the first write."""
        await self._connected()

    def finish(self) -> None:
        """Accepts no more work; `run` ends when the queue is empty."""
        self._send.close()

    async def run(self) -> None:
        try:
            async for first in self._receive:
                await self._commit([first, *self._others()])
        finally:
            self._send.close()
            for waiting in self._others(all_of_them=True):
                waiting.fail(TransientError("The store is closed."))
                waiting.done.set()

    async def close(self) -> None:
        self._send.close()
        self._receive.close()
        await self._disconnect()

    def _others(self, *, all_of_them: bool = False) -> Sequence[_Waiting]:
        others: list[_Waiting] = []
        while all_of_them or len(others) < self._batch_max - 1:
            try:
                others.append(self._receive.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                break
        return others

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        """Completes every caller of `batch` in any case. A running commit is not cancelled: whether it took place
        would be unknown. It has a deadline instead."""
        try:
            with anyio.fail_after(self._limit_seconds, shield=True):
                await self._run_works(batch)
        except (HomeportError, TimeoutError) as error:
            log.warning("group commit failed", error=str(error), works=len(batch))
            for waiting in batch:
                waiting.fail(_for_a_caller(error, self._limit_seconds))
            await self._disconnect(is_broken=True)
        except BaseException:
            for waiting in batch:
                waiting.fail(TransientError("The store has ended."))
            raise
        finally:
            for waiting in batch:
                waiting.done.set()

    async def _run_works(self, batch: Sequence[_Waiting]) -> None:
        connection = await self._connected()
        await connection.begin()
        appends = Appends(await load_counts(connection) if connection.is_postgresql else self._counts)
        savepoint = Savepoint(connection) if len(batch) > 1 else None
        for waiting in batch:
            if not waiting.abandoned:
                await _run_work(waiting, SqlTransaction(connection, appends, savepoint))
        if savepoint is None and batch[0].error is not None:
            await connection.command("ROLLBACK")
            return
        await appends.write_all(connection)
        passing(Point.STORE_BEFORE_COMMIT)
        await connection.command(*appends.closing, *_announcement(connection, appends), "COMMIT")
        passing(Point.STORE_AFTER_COMMIT)
        self._advance(appends.counts)

    def _advance(self, counts: Counts) -> None:
        self._counts = counts
        self.heard_of(counts[events])

    async def _connected(self) -> SqlConnection:
        """The writer's own connection. After a failure a new one is opened, and all counters are read again."""
        if self._connection is None:
            self._connection = await self._connect()
            self._advance(await load_counts(self._connection))
        return self._connection

    async def _disconnect(self, *, is_broken: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with anyio.move_on_after(5, shield=True):
            try:
                with translated():
                    if is_broken:
                        await connection.raw.invalidate()
                    await connection.raw.close()
            except HomeportError as error:
                log.warning("database connection close failed", error=str(error))


def _announcement(connection: SqlConnection, appends: Appends) -> tuple[str, ...]:
    """Sent only if the commit succeeds, so that other processes wake at once."""
    has_events = connection.is_postgresql and appends.counts[events] != appends.before[events]
    return (events_moved(appends.counts[events]),) if has_events else ()


async def _run_work(waiting: _Waiting, transaction: SqlTransaction) -> None:
    try:
        waiting.result = await waiting.work(transaction)
        transaction.keep()
    except Exception as error:  # noqa: BLE001 - the request ends here; its caller gets the error
        waiting.fail(error)
        await transaction.take_back()


def _for_a_caller(error: HomeportError | TimeoutError, limit_seconds: float) -> HomeportError:
    """Each caller gets its own error object, because raising one modifies it."""
    new: HomeportError
    if isinstance(error, TimeoutError):
        new = TransientError(f"The database did not finish within {limit_seconds:g} seconds.")
    else:
        kind = type(error) if isinstance(error, Refused | StorageFull | StorageReadOnly) else TransientError
        new = kind(str(error), hint=error.hint)
    new.__cause__ = error
    return new
