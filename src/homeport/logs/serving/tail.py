"""The newest lines, read once for all followers; followers who ask for the same share what is made of them.

A follower is a cursor: it holds one batch at a time and nothing is kept for it, so a slow one costs the others
nothing. One that is further behind than the cache reads from the store until it has caught up.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import field
from typing import Final

import anyio

from homeport.core.logs.line import StoredLine
from homeport.core.logs.query import LogFilter
from homeport.lazy_dataclass import dataclass
from homeport.ports import LogStore

READ_MAX: Final = 2_000
CHUNKS_MAX: Final = 20
PAGE_MAX: Final = 500
PAUSE_SECONDS: Final = 0.1
"""Lines that arrive faster are read together."""


@dataclass(frozen=True, slots=True)
class TailedLines:
    lines: Sequence[StoredLine]
    cursor: int
    missed: int = 0
    """How many ids between the cursor before and the oldest line that is left: the follower was too slow."""
    rendered: dict[str, bytes] = field(default_factory=dict, compare=False)
    """What followers made of it, by form; the first one does it for all others."""


@dataclass(slots=True)
class _Chunk:
    """Lines that follow each other in the store."""

    after: int
    last: int
    lines: Sequence[StoredLine]
    wanted: dict[tuple[LogFilter, int], TailedLines] = field(default_factory=dict)

    def news(self, query: LogFilter, cursor: int) -> TailedLines:
        known = self.wanted.get((query, cursor))
        if known is None:
            lines = query.shown(line for line in self.lines if line.id > cursor)
            known = self.wanted[query, cursor] = TailedLines(lines, self.last)
        return known


class LogTail:
    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._chunks: deque[_Chunk] = deque(maxlen=CHUNKS_MAX)
        self._turn = anyio.Lock()

    async def newest(self) -> int:
        return (await self._store.bounds())[1]

    async def after(self, cursor: int, query: LogFilter) -> TailedLines:
        """The next lines after `cursor` that match; waits until there are lines at all."""
        await self._store.wait(cursor)
        async with self._turn:
            last = self._chunks[-1].last if self._chunks else 0
            if not self._chunks or (cursor >= last and cursor - last > READ_MAX):
                self._chunks.clear()
                last = cursor
            if cursor >= last:
                await self._read(last)
            chunk = next((each for each in self._chunks if each.after <= cursor < each.last), None)
        if chunk is not None:
            return chunk.news(query, cursor)
        return await self._from_store(cursor, query)

    async def _read(self, after: int) -> None:
        lines = await self._store.after(after, READ_MAX)
        if lines:
            self._chunks.append(_Chunk(after, lines[-1].id, lines))

    async def _from_store(self, cursor: int, query: LogFilter) -> TailedLines:
        oldest, newest = await self._store.bounds()
        missed = max(0, oldest - cursor - 1) if cursor else 0
        begin = max(cursor, oldest - 1)
        found = await self._store.find(query, is_newest_first=False, after=begin, limit=PAGE_MAX)
        if found.next is not None:
            return TailedLines(found.lines, found.next, missed)
        # Everything up to the newest id of before the query was looked at, or up to what was found.
        last = found.lines[-1].id if found.lines else 0
        return TailedLines(found.lines, max(newest, begin, last), missed)


async def follow(
    tail: LogTail, query: LogFilter, cursor: int, *, until: int | None = None
) -> AsyncIterator[TailedLines]:
    """News for one follower, forever, or up to the line with the id `until`."""
    while until is None or cursor < until:
        news = await tail.after(cursor, query)
        cursor = news.cursor
        if news.lines or news.missed:
            yield news
        if len(news.lines) < PAGE_MAX:
            await anyio.sleep(PAUSE_SECONDS)
