"""The node's memory, safe against `kill -9` and power cuts: an order is durable before it is acted on, a result
before it is sent. What waits for the site is bounded: one result of each deployment, and so many notes of drift.

SQLite with synchronous=FULL. A commit waits for the disk, on an SD card for tens of milliseconds, so commits run in
a thread and not in the event loop; writes that arrive meanwhile share the next commit. Everything is also held in
memory, replaced only after the commit, so that reading costs no I/O. A node has few deployments; this is small.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.core.model.order import Order, Progress, Result
from homeport.core.node.entry import Entry, accepted, ended
from homeport.errors import WorkFailed
from homeport.failpoints import Point, passing
from homeport.node import rows
from homeport.ports import InThread, Vault
from homeport.vocabulary import DeploymentId

NOTES_KEPT: Final = 1000
"""Notes of drift that wait for the site; beyond so many, the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What the journal holds. A write works on a copy that becomes visible once it is durable."""

    entries: dict[DeploymentId, Entry]
    outbox: dict[int, Result | Progress]


Write = Callable[[sqlite3.Connection, Pages], None]


class Journal:
    def __init__(self, path: Path, vault: Vault | None = None, *, in_thread: InThread = run_sync) -> None:
        """Without a vault an order that carries secrets is refused."""
        self._path = path
        self._vault = vault
        self._in_thread = in_thread
        self._connection = rows.connect(path)
        self._pages = Pages(rows.load_entries(self._connection, vault), rows.load_outbox(self._connection))
        self._waiting: list[_Waiting] = []
        self._is_writing = False

    def close(self) -> None:
        self._connection.close()

    @property
    def entries(self) -> Mapping[DeploymentId, Entry]:
        return self._pages.entries

    @property
    def outbox(self) -> Mapping[int, Result | Progress]:
        """Results and notes that the site has not yet made durable, by sequence, in order."""
        return self._pages.outbox

    async def accept(self, orders: Sequence[Order]) -> None:
        """Takes up orders that were judged newer than what is there."""

        def write(connection: sqlite3.Connection, pages: Pages) -> None:
            for order in orders:
                entry = accepted(order, pages.entries.get(order.deployment_id))
                rows.write_entry(connection, entry, self._vault)
                pages.entries[order.deployment_id] = entry

        await self._write(write)

    async def finish(self, result: Result, *, keeps_good: bool = False) -> None:
        """Ends an order and puts its result into the outbox, unless a newer order has overtaken it. An earlier result
        of the same deployment that still waits is of an older order, and means nothing to the site any more."""

        def write(connection: sqlite3.Connection, pages: Pages) -> None:
            entry = pages.entries[result.deployment_id]
            if entry.order.generation != result.generation:
                return
            after = ended(entry, result, keeps_good=keeps_good)
            rows.write_entry(connection, after, self._vault)
            pages.entries[result.deployment_id] = after
            _forget(connection, pages, _results_of(result.deployment_id, pages))
            pages.outbox[rows.insert_news(connection, result)] = result

        await self._write(write)

    async def note(self, progress: Progress) -> None:
        """Puts something into the outbox that happened to a deployment without any order."""

        def write(connection: sqlite3.Connection, pages: Pages) -> None:
            pages.outbox[rows.insert_news(connection, progress)] = progress
            notes = [sequence for sequence, news in pages.outbox.items() if isinstance(news, Progress)]
            _forget(connection, pages, notes[:-NOTES_KEPT])

        await self._write(write)

    async def repeat(self, deployment_id: DeploymentId) -> None:
        """Puts the newest result into the outbox again, under a new sequence, so that this stream sends it too."""

        def write(connection: sqlite3.Connection, pages: Pages) -> None:
            result = pages.entries[deployment_id].result
            if result is None:
                return
            _forget(connection, pages, _results_of(deployment_id, pages))
            pages.outbox[rows.insert_news(connection, result)] = result

        await self._write(write)

    async def acknowledge(self, sequence: int) -> None:
        """Forgets what the site has made durable."""

        def write(connection: sqlite3.Connection, pages: Pages) -> None:
            rows.delete_news_until(connection, sequence)
            for done in [each for each in pages.outbox if each <= sequence]:
                del pages.outbox[done]

        if any(each <= sequence for each in self.outbox):
            await self._write(write)

    async def _write(self, write: Write) -> None:
        """Group commit: who finds nobody writing writes for all that wait, until nobody does."""
        mine = _Waiting(write)
        self._waiting.append(mine)
        if not self._is_writing:
            await self._write_all()
        with anyio.CancelScope(shield=True):
            await mine.done.wait()
        if mine.error is not None:
            raise mine.error

    async def _write_all(self) -> None:
        """Shielded, for the others who wait must not suffer from one caller's cancellation."""
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
        """Runs in a thread."""
        draft = Pages(dict(self._pages.entries), dict(self._pages.outbox))
        try:
            with self._connection:
                for each in batch:
                    each.write(self._connection, draft)
                passing(Point.JOURNAL_BEFORE_COMMIT)
            passing(Point.JOURNAL_AFTER_COMMIT)
        except (sqlite3.Error, WorkFailed) as error:
            for each in batch:
                each.error = error if isinstance(error, WorkFailed) else rows.translated(error, self._path)
        else:
            self._pages = draft


def _results_of(deployment_id: DeploymentId, pages: Pages) -> list[int]:
    return [
        sequence
        for sequence, news in pages.outbox.items()
        if isinstance(news, Result) and news.deployment_id == deployment_id
    ]


def _forget(connection: sqlite3.Connection, pages: Pages, sequences: Sequence[int]) -> None:
    for sequence in sequences:
        rows.delete_news(connection, sequence)
        del pages.outbox[sequence]


class _Waiting:
    def __init__(self, write: Write) -> None:
        self.write = write
        self.done = anyio.Event()
        self.error: WorkFailed | None = None
