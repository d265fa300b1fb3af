"""The State Manifests of all clients: rendered when a client asks after a change, kept as bytes, sent from memory.

The desired state is the table of deployments, which follows Git. Only clients that ask cost anything, and only after
something of theirs has changed: the event log tells which. Those that ask while others are rendered are rendered
together next.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import anyio

from homeport.core.margo.manifest import digest_of
from homeport.core.margo.records import ManifestArtifact
from homeport.errors import HomeportError, TransientError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.margo.wfm.rendering import Prepared, Rendered, Renderer
from homeport.ports import Clock, InThread, Store
from homeport.vocabulary import Digest, EventKind, SiteName

PREPARED_MAX: Final = 200_000
BATCH_MAX: Final = 250
"""How many clients are rendered together: one read and one commit for all of them."""
EVENTS_BATCH: Final = 1_000
RETRY_SECONDS: Final = 1.0
CHANGING: Final = frozenset(
    {
        EventKind.DEPLOYMENT_CREATED,
        EventKind.DEPLOYMENT_CHANGED,
        EventKind.DEPLOYMENT_UNWANTED,
        EventKind.SITE_DEVICES,
        EventKind.SITE_REMOVED,
    }
)

log = get_log("homeport.margo")


@dataclass(slots=True)
class _Ticket:
    """Of all that ask for the manifest of one client."""

    found: Prepared | HomeportError | None = None


class Manifests:
    def __init__(self, store: Store, clock: Clock, in_thread: InThread) -> None:
        self._store = store
        self._renderer = Renderer(store, clock, in_thread)
        self._prepared: dict[SiteName, Prepared] = {}
        self._tickets: dict[SiteName, _Ticket] = {}
        self._rendered: anyio.Event | None = None
        """Set at the end of the batch that is under way; None while there is none."""
        self._rendering: set[SiteName] = set()
        """Of the batch under way, those whose desired state has not changed since it began."""

    def ready(self, site: SiteName) -> Prepared | None:
        """The current manifest, if it is in memory."""
        return self._prepared.get(site)

    async def current(self, site: SiteName) -> Prepared:
        """The current manifest; a new one where the desired state has changed. Raises HomeportError."""
        if (ready := self._prepared.get(site)) is not None:
            return ready
        ticket = self._tickets.setdefault(site, _Ticket())
        while ticket.found is None:
            if self._rendered is None:
                await self._render_batch()
            else:
                # All are woken together: in a queue, one would be let through in each step of the event loop.
                await self._rendered.wait()
        if isinstance(ticket.found, HomeportError):
            # An error object of its own: raising one modifies it, and others wait for the same.
            raise TransientError(str(ticket.found)) from ticket.found
        return ticket.found

    async def artifact(self, site: SiteName, digest: Digest) -> ManifestArtifact | None:
        """Only among the client's own, and only the bytes that its digest is of. Where they are damaged there is
        nothing at this digest; the client's next manifest is a new one, with everything that it lists."""
        async with self._store.read() as reader:
            found = await reader.margo_artifact(site, digest)
        if found is None or digest_of(found.content) == digest:
            return found
        log.error("stored artifact is damaged, the manifest is rendered again", site=site, digest=digest)
        await self._renderer.discard(site)
        self.changed(site)
        return None

    def changed(self, site: SiteName) -> None:
        """The next request renders it again, or finds that nothing of it has changed."""
        self._prepared.pop(site, None)
        self._rendering.discard(site)

    async def follow(self) -> None:
        """Runs while the role runs: forgets what was prepared when the desired state changes, at any replica."""
        async with self._store.read() as reader:
            cursor = await reader.last_event_id()
        self._forget()
        while True:
            try:
                newest = await self._store.wait_for_event(cursor)
                # What is rendered from now on includes these events, so without anything prepared they say nothing.
                has_any = self._prepared or self._rendering
                cursor = await self._follow_from(cursor) if has_any else newest
            except TransientError as error:
                log.warning("manifest changes not read, will retry", why=str(error))
                await anyio.sleep(RETRY_SECONDS)

    async def _follow_from(self, cursor: int) -> int:
        async with self._store.read() as reader:
            events = await reader.events(after=cursor, limit=EVENTS_BATCH)
        if events and events[0].id != cursor + 1:
            self._forget()  # events were trimmed before they were read
        for event in events:
            if event.event.kind in CHANGING and event.event.site is not None:
                self.changed(event.event.site)
                if (moved := event.event.data.get("moved_to")) is not None:
                    self.changed(SiteName(str(moved)))
        return events[-1].id if events else cursor

    def _forget(self) -> None:
        self._prepared.clear()
        self._rendering.clear()

    async def _render_batch(self) -> None:
        """What has changed meanwhile stays in the queue, and so does everything if this is cancelled."""
        self._rendered = done = anyio.Event()
        try:
            await self._render(dict(islice(self._tickets.items(), BATCH_MAX)))
        finally:
            self._rendered = None
            done.set()

    async def _render(self, batch: Mapping[SiteName, _Ticket]) -> None:
        self._rendering = set(batch)
        rendered = await self._rendered_of(list(batch))
        for site, ticket in batch.items():
            found = rendered.get(site)
            if found is None or (isinstance(found, Prepared) and site not in self._rendering):
                continue
            ticket.found = found
            del self._tickets[site]
            if isinstance(found, Prepared):
                self._keep(site, found)
        self._rendering = set()

    async def _rendered_of(self, sites: Sequence[SiteName]) -> Rendered:
        """A damaged record fails for its own client alone."""
        try:
            return await self._renderer.render(sites)
        except HomeportError as error:
            log.warning("manifests not rendered", count=len(sites), why=str(error))
            return dict.fromkeys(sites, error)
        except Exception:  # a row that somebody has written by hand, or a damaged page of the database
            if len(sites) > 1:
                return {key: found for site in sites for key, found in (await self._rendered_of([site])).items()}
            log.exception("manifest not rendered, its record is damaged", site=sites[0])
            why = f"The manifest of {sites[0]} cannot be made; the log of the fleet manager says why."
            return {sites[0]: TransientError(why)}

    def _keep(self, site: SiteName, made: Prepared) -> None:
        if len(self._prepared) >= PREPARED_MAX:
            self._prepared.pop(next(iter(self._prepared)))
        self._prepared[site] = made
