"""The loops of central, one line each in `run_loops`. Each runs for as long as the role lives."""

from datetime import timedelta

import anyio
import anyio.to_thread
import structlog

from homeport.adapters.identity.doors import follow_doors
from homeport.adapters.identity.keeping import nothing_more
from homeport.adapters.identity.outside import follow_files
from homeport.central.parts import CentralCore, CentralParts
from homeport.core.model.caller import INTERNAL
from homeport.core.model.event import NewEvent, Site
from homeport.errors import PermanentError, TransientError
from homeport.fleet.deploy import mark_site
from homeport.fleet.rollback import settle_pins
from homeport.fleet.rollout_loop import PAUSE_SECONDS, RolloutLoop
from homeport.fleet.rounds import every
from homeport.vocabulary import EventKind, SiteName

log = structlog.get_logger("homeport.central")

RETRY_SECONDS = 2.0
TRIM_SECONDS = 60.0
AUDIT_SECONDS = 5.0
ACCESS_SECONDS = 1.0
"""How long an open stream outlives the expiry of its token, or a revocation by another process."""
RENEW_SECONDS = 10.0
"""How often central looks whether its certificate is due; it lives for hours."""


async def run_loops(central: CentralParts) -> None:
    settings = central.settings
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_core_loops, central)
        tasks.start_soon(every, "access", ACCESS_SECONDS, central.gate.sweep)
        tasks.start_soon(keep_identity, central)
        tasks.start_soon(every, "strangers", ACCESS_SECONDS, central.strangers.settle)
        tasks.start_soon(every, "files for people", RENEW_SECONDS, lambda: follow_doors(central.doors))
        tasks.start_soon(every, "accepted", ACCESS_SECONDS, lambda: central.registrar.policy.load(central.store))
        tasks.start_soon(every, "audit", AUDIT_SECONDS, central.auditor.settle)
        tasks.start_soon(every, "audit trim", TRIM_SECONDS, lambda: central.auditor.trim(settings.audit_days))


async def run_core_loops(central: CentralCore) -> None:
    """What makes central central; a simulation runs these and no others."""
    settings, silence = central.settings, Silence(central)
    rollouts = RolloutLoop(central.office, settings.sweep_seconds)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, central)
        tasks.start_soon(every, "silence", settings.sweep_seconds, silence.sweep)
        tasks.start_soon(every, "markers", settings.sweep_seconds, lambda: mark_sites(central))
        tasks.start_soon(every, "pins", settings.sweep_seconds, lambda: settle_pins(central.desk, central.clock))
        tasks.start_soon(every, "rollouts", PAUSE_SECONDS, rollouts.round)
        tasks.start_soon(every, "trim", TRIM_SECONDS, lambda: trim(central))


async def follow(central: CentralCore) -> None:
    """Shows what is in Git, whoever pushed it, and tells sites. What cannot be followed is said in /readyz."""
    async for _ in central.git.watch():
        try:
            commit = await central.index.catch_up()
            if commit is not None:
                central.calls.tell(commit)
            central.contact.of_git(None)
        except TransientError as error:
            central.contact.of_git(str(error))
            log.warning("deployments repository cannot be read, what is shown stays", why=str(error))
            await anyio.sleep(RETRY_SECONDS)
            central.git.nudge()
        except PermanentError as error:
            if central.contact.git != str(error):
                log.warning("deployments repository cannot be followed", why=str(error), hint=error.hint)
            central.contact.of_git(str(error))


class Silence:
    """Says once of each site that it has fallen silent. Whether it is reachable is never stored, only derived."""

    def __init__(self, central: CentralCore) -> None:
        self._central = central
        self._silent: set[SiteName] = set()

    async def sweep(self) -> None:
        now = self._central.clock.now()
        limit = timedelta(seconds=self._central.settings.site_silence_seconds)
        async with self._central.store.read() as reader:
            sites = await reader.sites()
        silent = {site.name: site for site in sites if site.last_seen is not None and now - site.last_seen > limit}
        new = [site for name, site in silent.items() if name not in self._silent]
        self._silent = set(silent)
        if new:
            events = [self._event(site) for site in new]
            await self._central.store.write(lambda tx: tx.append_events(events))
            log.warning("sites have fallen silent", sites=[site.name for site in new][:20], count=len(new))

    def _event(self, site: Site) -> NewEvent:
        message = f"site {site.name} cannot be reached; what runs there goes on"
        return NewEvent(EventKind.SITE_PROBLEM, self._central.clock.now(), message, site=site.name)


async def mark_sites(central: CentralCore) -> None:
    for site in sorted(central.unmarked):
        await mark_site(site, central.desk, INTERNAL)
        central.unmarked.discard(site)


async def keep_identity(central: CentralParts) -> None:
    identity = central.identity
    if identity.is_outside:
        await follow_files(identity.credentials, nothing_more)
    period = min(RENEW_SECONDS, central.settings.svid_seconds / 10)
    await every("own certificate", period, lambda: renew_own(central))


async def renew_own(central: CentralParts) -> None:
    await anyio.to_thread.run_sync(central.identity.keep_up)


async def trim(central: CentralCore) -> None:
    await central.store.write(lambda tx: tx.trim_events(central.settings.events_max))
