"""The loops of a site, one line each in `run_loops`. Each runs for as long as the role lives."""

from collections.abc import Awaitable, Callable

import anyio
import structlog

from homeport import __version__
from homeport.errors import PeerUnavailable, TransientError
from homeport.fleet.backoff import Backoff
from homeport.fleet.following import follow
from homeport.fleet.outbox import forward
from homeport.ports import CentralLink, GitSource, Store
from homeport.site.parts import SiteParts
from homeport.site.settings import SiteSettings

log = structlog.get_logger(__name__)

SWEEP_SECONDS_MAX = 30.0
TRIM_SECONDS = 60.0


async def run_loops(site: SiteParts) -> None:
    settings, conductor = site.settings, site.conductor
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, site.git, conductor, site.contact.of_git)
        tasks.start_soon(site.sessions.digest_news, conductor.take)
        tasks.start_soon(every, "sweep", settings.sweep_seconds, conductor.sweep)
        tasks.start_soon(every, "trim", TRIM_SECONDS, lambda: trim(site.store, settings.events_max))
        if site.central is not None:
            tasks.start_soon(_forward, site, site.central)
            tasks.start_soon(_listen, settings, site.central, site.git)


async def _forward(site: SiteParts, central: CentralLink) -> None:
    await forward(
        site.store,
        central,
        site.conductor,
        site=site.settings.name,
        epoch=site.epoch,
        software_version=__version__,
        heartbeat_seconds=site.settings.report_seconds,
        on_contact=site.contact.of_central,
    )


async def _listen(settings: SiteSettings, central: CentralLink, git: GitSource) -> None:
    """Central says at once when the repository has moved; without it the poll does, later."""
    backoff = Backoff()
    while True:
        try:
            async for _ in central.watch(settings.name):
                backoff.reset()
                git.nudge()
        except PeerUnavailable as error:
            log.debug("central's word is not heard", why=str(error))
        await anyio.sleep(backoff.next_seconds())


async def trim(store: Store, keep: int) -> None:
    await store.write(lambda tx: tx.trim_events(keep))


async def every(name: str, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Repeats `work`. A transient failure costs one round; anything else ends the role, for a loop that died in
    silence is worse than a process that its supervisor restarts."""
    while True:
        try:
            with anyio.fail_after(SWEEP_SECONDS_MAX):
                await work()
        except (TransientError, TimeoutError) as error:
            log.warning("round lost", loop=name, why=repr(error))
        await anyio.sleep(seconds)
