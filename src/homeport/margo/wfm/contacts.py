"""When clients were last in contact, and the folders in Git of those that are new here.

A client polls as its owner has configured it, so it counts as in reach for a while after each request.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

import anyio

from homeport.core.model.caller import INTERNAL
from homeport.errors import PermanentError, TransientError
from homeport.fleet.central.deploy import GitWriter, mark_site, mark_sites
from homeport.fleet.shared.named_sites import sites_by_name
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock, Store
from homeport.vocabulary import SiteName

REACHABLE_SECONDS: Final = 120.0
"""Twice the longest usual polling interval. A client that polls once an hour is shown as out of reach in between."""
FLUSH_SECONDS: Final = 5.0
BATCH_MAX: Final = 1_000
"""How many new clients are registered with one commit."""

log = get_log("homeport.margo")


@dataclass(slots=True)
class Contacts:
    store: Store
    clock: Clock
    git_writer: Callable[[], GitWriter]
    _seen: dict[SiteName, float] = field(default_factory=dict)
    _known: set[SiteName] = field(default_factory=set)
    _tried: set[SiteName] = field(default_factory=set)
    """Could not be registered: tried again in the next round, not at each of their requests."""
    _new: anyio.Event = field(default_factory=anyio.Event)

    def seen(self, site: SiteName) -> None:
        self._seen[site] = self.clock.monotonic()
        if site not in self._known and site not in self._tried:
            self._new.set()

    async def run(self) -> None:
        """Runs while the role runs. A new client is registered at once; without clients nothing is done."""
        while True:
            if not self._seen:
                await self._new.wait()
            self._new = anyio.Event()
            try:
                await self.flush()
            except (TransientError, PermanentError) as error:
                log.warning("margo contacts not written, will retry", why=str(error))
                await anyio.sleep(FLUSH_SECONDS)
            with anyio.move_on_after(FLUSH_SECONDS) as waiting:
                await self._new.wait()
            if waiting.cancelled_caught:
                self._tried.clear()

    async def flush(self) -> None:
        moment, now = self.clock.monotonic(), self.clock.now()
        self._seen = {site: at for site, at in self._seen.items() if moment - at < REACHABLE_SECONDS}
        new = sorted(self._seen.keys() - self._known)
        for start in range(0, len(new), BATCH_MAX):
            await self._register(new[start : start + BATCH_MAX])
        if names := sorted(self._seen.keys() & self._known):
            await self.store.write(lambda tx: tx.touch_sites(names, now))

    async def _register(self, sites: Sequence[SiteName]) -> None:
        """An accepted client is a site like any other: it gets its folder in Git."""
        async with self.store.read() as reader:
            self._known |= (await sites_by_name(reader, sites)).keys()
        new = [site for site in sites if site not in self._known]
        if len(new) > 1:
            try:
                await mark_sites(new, self.git_writer(), INTERNAL)
            except (TransientError, PermanentError) as error:
                log.info("site markers not written together, trying one by one", count=len(new), why=str(error))
            else:
                self._registered(new)
                return
        for site in new:
            try:
                await mark_site(site, self.git_writer(), INTERNAL)
                self._registered([site])
            except (TransientError, PermanentError) as error:
                self._tried.add(site)
                log.warning("site marker write failed, will retry", site=site, why=str(error))

    def _registered(self, sites: Sequence[SiteName]) -> None:
        self._known.update(sites)
        for site in sites:
            log.info("margo client registered as a site", site=site)
