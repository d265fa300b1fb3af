"""The newest events of one scope, read and rendered once for all followers.

One of the followers waits for the store on behalf of all, reads, and wakes the others. A crowd of them is woken
together, a few times a second and some at a time, so that a deploy does not wait behind a thousand who watch it. A
follower that is further behind than the cache reads from the store until it has caught up.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import anyio

from homeport.core.model.event import Event, NewEvent, Subject
from homeport.fleet.shared.scope import ReadOnly
from homeport.lazy_dataclass import dataclass
from homeport.serving.to_bodies import event_body
from homeport.vocabulary import SiteName

BATCH_MAX: Final = 500
KEPT_MAX: Final = 1_000
"""Of a few hundred bytes each; a follower that keeps up needs only the newest."""
CROWD: Final = 50
"""From so many followers on, new events are handed out together."""
CROWD_SECONDS: Final = 0.25
"""How long a crowd waits for more before it is woken: as often as a page is painted."""
WOKEN: Final = 25
"""So many of a crowd at once: less than a millisecond for all else that waits for the event loop."""
PAUSE_SECONDS: Final = 0.006
"""Between them, which leaves most of the event loop to others."""
PAUSES_MAX: Final = 40
"""More followers are woken in as many larger groups, so that all have the events after half a second."""


@dataclass(frozen=True, slots=True)
class About:
    """Filter of the followed events."""

    subjects: frozenset[Subject] = frozenset()
    """Events about one of these; all events where it is empty."""
    site: SiteName | None = None

    def fits(self, event: NewEvent) -> bool:
        return (not self.subjects or event.subject in self.subjects) and self.site in (None, event.site)


EVERYTHING: Final = About()


class Tail:
    def __init__(self, store: ReadOnly) -> None:
        self.store = store
        self._ids: list[int] = []
        self._kept: list[tuple[NewEvent, bytes]] = []
        self._begin: int | None = None
        """Every event after this one is cached, up to the one below."""
        self._end = 0
        self._turn = anyio.Lock()
        self._newest = 0
        """The newest event that a follower knows of."""
        self._waiting: dict[anyio.Event, int] = {}
        """Followers that wait, with their cursors."""
        self._is_watched = False
        """Whether one of the followers waits for the store."""
        self._joined: tuple[int, int, bytes] = (0, 0, b"")
        """The frames after an event up to another, as all followers of everything get them."""

    async def is_ahead(self, cursor: int) -> bool:
        """Whether `cursor` is beyond the end of the log. Cursors that others have passed need no query."""
        if cursor <= self._end:
            return False
        async with self.store.read() as reader:
            return cursor > await reader.last_event_id()

    async def wait(self, cursor: int) -> None:
        """Returns when there is an event after `cursor`, a moment later where many followers wait."""
        self._newest = max(self._newest, cursor)
        while self._newest <= cursor:
            if not self._is_watched:
                await self._watch(cursor)
                continue
            event = anyio.Event()
            self._waiting[event] = cursor
            try:
                await event.wait()
            finally:
                self._waiting.pop(event, None)

    async def _watch(self, cursor: int) -> None:
        self._is_watched = True
        try:
            await self.store.wait_for_event(cursor)
            if len(self._waiting) >= CROWD:
                await anyio.sleep(CROWD_SECONDS)
            newest = await self.store.wait_for_event(cursor)
            async with self._turn:
                if self._begin is not None and self._end < newest:
                    await self._read()
            self._newest = max(self._newest, newest)
            await self._wake(tuple(self._waiting))
        finally:
            self._is_watched = False
            self._resign()

    async def _wake(self, waiting: Sequence[anyio.Event]) -> None:
        count = max(WOKEN, len(waiting) // PAUSES_MAX)
        for start in range(0, len(waiting), count):
            if start:
                await anyio.sleep(PAUSE_SECONDS)
            for event in waiting[start : start + count]:
                event.set()

    def _resign(self) -> None:
        """Wakes who is still to be woken, and one more, to watch from now on. The others may be busy with sending."""
        asleep = {event: cursor for event, cursor in self._waiting.items() if not event.is_set()}
        behind = [event for event, cursor in asleep.items() if cursor < self._newest]
        heir = next((event for event in asleep if event not in behind), None)
        for event in (*behind, *(() if heir is None else (heir,))):
            event.set()

    async def after(self, cursor: int, about: About) -> tuple[bytes, int]:
        """The frames after `cursor`, and the follower's new cursor."""
        if self._begin is not None and self._begin <= cursor < self._end:
            return self._cached(cursor, about)
        async with self._turn:
            if self._begin is None or cursor - self._end > BATCH_MAX:
                # Far ahead of the cache: other followers are there too, or catch up from the store.
                self._ids, self._kept = [], []
                self._begin = self._end = cursor
            if cursor >= self._end:
                await self._read()
            if cursor >= self._begin:
                return self._cached(cursor, about)
        return await self._from_store(cursor, about)

    def _cached(self, cursor: int, about: About) -> tuple[bytes, int]:
        end = max(cursor, self._end)
        if about == EVERYTHING and self._joined[:2] == (cursor, end):
            return self._joined[2], end
        kept = self._kept[bisect_right(self._ids, cursor) :]
        frames = b"".join(frame for event, frame in kept if about.fits(event))
        if about == EVERYTHING:
            self._joined = (cursor, end, frames)
        return frames, end

    async def _read(self) -> None:
        events, self._end = await _batch(self.store, self._end)
        self._ids += [event.id for event in events]
        self._kept += [(event.event, rendered(event)) for event in events]
        surplus = len(self._ids) - KEPT_MAX
        if surplus > BATCH_MAX:
            self._begin = self._ids[surplus - 1]
            del self._ids[:surplus], self._kept[:surplus]

    async def _from_store(self, cursor: int, about: About) -> tuple[bytes, int]:
        one = next(iter(about.subjects)) if len(about.subjects) == 1 else None
        events, end = await _batch(self.store, cursor, one)
        return b"".join(rendered(event) for event in events if about.fits(event.event)), end


async def _batch(store: ReadOnly, after: int, subject: Subject | None = None) -> tuple[list[Event], int]:
    async with store.read() as reader:
        last = await reader.last_event_id()
        events = list(await reader.events(after=after, limit=BATCH_MAX, subject=subject))
    return events, events[-1].id if len(events) == BATCH_MAX else max(after, last)


def rendered(event: Event) -> bytes:
    """As a server-sent event."""
    body = event_body(event).model_dump_json()
    return f"id: {event.id}\nevent: {event.event.kind.value}\ndata: {body}\n\n".encode()
