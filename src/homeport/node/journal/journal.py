"""The node's journal, safe against `kill -9` and power cuts: an order is durable before it is carried out, a result
before it is sent. Its outbox is bounded: one result per piece of work, and `NOTES_KEPT` notes of drift.

SQLite with synchronous=FULL. A commit waits for the disk, on an SD card for tens of milliseconds, so commits run in
a thread; writes that arrive during one share the next. Everything is also held in memory, replaced only after the
commit, so that reading needs no I/O. A node has little work; this is small.
"""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.core.model.order import DEPLOYMENT, Assignment, Order, Progress, Result, WorkKey
from homeport.core.node.entry import JournalEntry, accepted, ended, told_health
from homeport.errors import WorkFailed
from homeport.failpoints import Point, passing
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.node.journal import rows
from homeport.ports import InThread, Vault
from homeport.vocabulary import DeploymentId, Generation

log = get_log("homeport.node")

NOTES_KEPT: Final = 1000
"""Maximum queued notes of drift; beyond it the oldest are dropped."""


FORGOTTEN_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class JournalContent:
    """The content of the journal. A write works on a copy that becomes visible once it is durable."""

    entries: dict[WorkKey, JournalEntry]
    outbox: dict[int, Result | Progress]


Write = Callable[[sqlite3.Connection, JournalContent], None]


class Journal:
    def __init__(self, path: Path, vault: Vault | None = None, *, in_thread: InThread = run_sync) -> None:
        """Without a vault an order with secrets is refused."""
        self._path = path
        self._vault = vault
        self._in_thread = in_thread
        self._connection = rows.connect(path)
        self.set_aside: list[str] = []
        """Messages about rows that could not be read at this start."""
        with self._connection:
            entries = rows.load_entries(self._connection, vault, self._set_aside)
            self._pages = JournalContent(entries, rows.load_outbox(self._connection, self._set_aside))
        self._waiting: list[_Waiting] = []
        self._is_writing = False
        self.one_off: frozenset[str] = frozenset()
        """Kinds of work that are done once: an entry is deleted when the site has its result."""
        self._forgotten: dict[WorkKey, Generation] = {}
        """The newest of those entries, so that an order that was sent twice is not carried out again."""

    def close(self) -> None:
        self._connection.close()

    def _set_aside(self, table: str, key: object, why: str) -> None:
        rows.set_row_aside(self._connection, table, key, why)
        self.set_aside.append(f"row {key} of {table}: {why}")
        log.error("journal row set aside", table=table, key=key, why=why)

    @property
    def entries(self) -> Mapping[WorkKey, JournalEntry]:
        """Of every kind of work."""
        return self._pages.entries

    @property
    def deployments(self) -> Mapping[DeploymentId, JournalEntry]:
        return {DeploymentId(key.id): entry for key, entry in self.entries.items() if key.kind == DEPLOYMENT}

    def unfinished(self, kind: str) -> list[Assignment]:
        """The orders of a kind of work that have not ended."""
        return [
            entry.order.assignment for key, entry in self.entries.items() if key.kind == kind and entry.result is None
        ]

    @property
    def outbox(self) -> Mapping[int, Result | Progress]:
        """Results and notes that the site has not acknowledged yet, by sequence, in order."""
        return self._pages.outbox

    def news_after(self, sequence: int) -> list[tuple[int, Result | Progress]]:
        """Costs only what it returns: sequences ascend, and before them is what waits for its acknowledgement."""
        newest_first = takewhile(lambda each: each[0] > sequence, reversed(self._pages.outbox.items()))
        return list(newest_first)[::-1]

    async def accept(self, orders: Sequence[Order]) -> None:
        """Records orders that were found to be newer than the known ones."""

        def write(connection: sqlite3.Connection, pages: JournalContent) -> None:
            for order in orders:
                entry = accepted(order, pages.entries.get(order.key))
                rows.write_entry(connection, entry, self._vault)
                pages.entries[order.key] = entry

        await self._write(write)

    async def begin(self, assignment: Assignment) -> JournalEntry | None:
        """Counts one more start of an interrupted order, before anything is done for it; returns the entry, or None
        when a newer order has superseded it."""
        key = assignment.key

        def write(connection: sqlite3.Connection, pages: JournalContent) -> None:
            entry = pages.entries.get(key)
            if entry is not None and entry.order.generation == assignment.generation:
                pages.entries[key] = replace(entry, starts=entry.starts + 1)
                rows.write_starts(connection, pages.entries[key])

        await self._write(write)
        entry = self.entries.get(key)
        return entry if entry is not None and entry.order.generation == assignment.generation else None

    async def stop(self, keys: Collection[WorkKey]) -> None:
        """Uncounts the start of orders that are interrupted because the node is stopped: that is not a crash."""

        def write(connection: sqlite3.Connection, pages: JournalContent) -> None:
            for key in keys:
                entry = pages.entries[key]
                pages.entries[key] = replace(entry, starts=max(entry.starts - 1, 0))
                rows.write_starts(connection, pages.entries[key])

        if keys:
            await self._write(write)

    async def finish(self, result: Result, *, keeps_good: bool = False) -> None:
        """Ends an order and queues its result, unless a newer order has superseded it. An earlier queued result of
        the same work is of an older order, and no longer needed."""

        def write(connection: sqlite3.Connection, pages: JournalContent) -> None:
            entry = pages.entries[result.key]
            if entry.order.generation != result.generation:
                return
            after = ended(entry, result, keeps_good=keeps_good)
            rows.write_entry(connection, after, self._vault)
            pages.entries[result.key] = after
            _forget(connection, pages, _results_of(result.key, pages))
            pages.outbox[rows.insert_news(connection, result)] = result

        await self._write(write)

    async def note(self, progress: Progress) -> None:
        """Queues a report of something that happened without an order."""

        def write(connection: sqlite3.Connection, pages: JournalContent) -> None:
            pages.outbox[rows.insert_news(connection, progress)] = progress
            entry = pages.entries.get(progress.key)
            if progress.healthy is not None and entry is not None and entry.order.generation == progress.generation:
                after = told_health(entry, progress)
                rows.write_entry(connection, after, self._vault)
                pages.entries[progress.key] = after
            notes = [sequence for sequence, news in pages.outbox.items() if isinstance(news, Progress)]
            _forget(connection, pages, notes[:-NOTES_KEPT])

        await self._write(write)

    async def repeat(self, key: WorkKey) -> None:
        """Queues the newest result again, under a new sequence, so that this stream sends it too."""

        def write(connection: sqlite3.Connection, pages: JournalContent) -> None:
            result = pages.entries[key].result
            if result is None:
                return
            _forget(connection, pages, _results_of(key, pages))
            pages.outbox[rows.insert_news(connection, result)] = result

        await self._write(write)

    async def acknowledge(self, sequence: int) -> None:
        """Deletes what the site has made durable."""

        def write(connection: sqlite3.Connection, pages: JournalContent) -> None:
            rows.delete_news_until(connection, sequence)
            for done in [each for each in pages.outbox if each <= sequence]:
                news = pages.outbox.pop(done)
                if isinstance(news, Result) and news.work in self.one_off:
                    self._forget_entry(connection, pages, news)

        if any(each <= sequence for each in self.outbox):
            await self._write(write)

    def is_forgotten(self, order: Order) -> bool:
        """Whether the site already has the result of this order, or of a newer one of the same work."""
        return order.generation <= self._forgotten.get(order.key, 0)

    def _forget_entry(self, connection: sqlite3.Connection, pages: JournalContent, result: Result) -> None:
        entry = pages.entries.get(result.key)
        if entry is None or entry.result is None or entry.order.generation != result.generation:
            return  # A newer order has come.
        rows.delete_entry(connection, result.key)
        del pages.entries[result.key]
        self._forgotten[result.key] = result.generation
        while len(self._forgotten) > FORGOTTEN_KEPT:
            del self._forgotten[next(iter(self._forgotten))]

    async def _write(self, write: Write) -> None:
        """Group commit: the first caller that finds no write in progress writes for all that wait."""
        mine = _Waiting(write)
        self._waiting.append(mine)
        if not self._is_writing:
            await self._write_all()
        with anyio.CancelScope(shield=True):
            await mine.done.wait()
        if mine.error is not None:
            raise mine.error

    async def _write_all(self) -> None:
        """Shielded, so that one caller's cancellation does not affect the others."""
        self._is_writing = True
        with anyio.CancelScope(shield=True):
            try:
                while self._waiting:
                    batch, self._waiting = self._waiting, []
                    await self._in_thread(self._commit, batch)
                    for each in batch:
                        each.done.set()
            finally:
                self._is_writing = False

    def _commit(self, batch: Sequence["_Waiting"]) -> None:
        """Runs in a thread. A write that raises fails alone: those it shared the commit with are repeated, one by
        one."""
        draft = JournalContent(dict(self._pages.entries), dict(self._pages.outbox))
        try:
            with self._connection:
                for each in batch:
                    each.write(self._connection, draft)
                passing(Point.JOURNAL_BEFORE_COMMIT)
            passing(Point.JOURNAL_AFTER_COMMIT)
        except Exception as error:  # noqa: BLE001 - whatever it is, that write failed
            if len(batch) > 1:
                for each in batch:
                    self._commit([each])
            else:
                batch[0].error = error if isinstance(error, WorkFailed) else rows.translated(error, self._path)
        else:
            self._pages = draft


def _results_of(key: WorkKey, pages: JournalContent) -> list[int]:
    return [sequence for sequence, news in pages.outbox.items() if isinstance(news, Result) and news.key == key]


def _forget(connection: sqlite3.Connection, pages: JournalContent, sequences: Sequence[int]) -> None:
    for sequence in sequences:
        rows.delete_news(connection, sequence)
        del pages.outbox[sequence]


class _Waiting:
    def __init__(self, write: Write) -> None:
        self.write = write
        self.done = anyio.Event()
        self.error: WorkFailed | None = None
