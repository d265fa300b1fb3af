"""The newest events of one scope, read and rendered once for all followers.

The first follower after a commit reads for all others. A follower that is further behind than the cache reads from
the store until it has caught up.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

import anyio

from homeport.core.model.event import Event, NewEvent, Subject
from homeport.fleet.shared.scope import ReadOnly
from homeport.serving.to_bodies import event_body
from homeport.vocabulary import SiteName

BATCH_MAX: Final = 500
KEPT_MAX: Final = 1_000
"""Of a few hundred bytes each; a follower that keeps up needs only the newest."""


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

    async def is_ahead(self, cursor: int) -> bool:
        """Whether `cursor` is beyond the end of the log. Cursors that others have passed need no query."""
        if cursor <= self._end:
            return False
        async with self.store.read() as reader:
            return cursor > await reader.last_event_id()

    async def after(self, cursor: int, about: About) -> tuple[bytes, int]:
        """The frames after `cursor`, and the follower's new cursor."""
        async with self._turn:
            if self._begin is None or cursor - self._end > BATCH_MAX:
                # Far ahead of the cache: other followers are there too, or catch up from the store.
                self._ids, self._kept = [], []
                self._begin = self._end = cursor
            if cursor >= self._end:
                await self._read()
            if cursor >= self._begin:
                first = bisect_right(self._ids, cursor)
                wanted = [frame for event, frame in self._kept[first:] if about.fits(event)]
                return b"".join(wanted), max(cursor, self._end)
        return await self._from_store(cursor, about)

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
