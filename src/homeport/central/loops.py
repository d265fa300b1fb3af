"""The loops of central, one line each in `run_loops`. Each runs while the role runs."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import anyio
import anyio.to_thread

from homeport.adapters.identity.external_svid import follow_files
from homeport.adapters.identity.https_certificates import reload_changed_certificates
from homeport.adapters.identity.renewal import nothing_more
from homeport.capability.central import Loop, ReplicaChoice
from homeport.central.parts import CentralCore, CentralParts
from homeport.central.replicas import PINS, SWEEPS
from homeport.core.model.caller import INTERNAL
from homeport.core.model.event import NewEvent, Site
from homeport.errors import PermanentError, TransientError
from homeport.fleet.central.deploy import mark_site
from homeport.fleet.central.reports.restatements import ask_again
from homeport.fleet.central.rollback import settle_pins
from homeport.fleet.shared.leases import while_held
from homeport.fleet.shared.periodic import EventOr, every
from homeport.fleet.shared.retention import retention_now
from homeport.log import get_log
from homeport.ports import Reader, Transaction
from homeport.vocabulary import EventKind, LogStream

log = get_log("homeport.central")

RETRY_SECONDS = 2.0
TRIM_SECONDS = 60.0
AUDIT_SECONDS = 5.0
ACCESS_SECONDS = 1.0
"""How long an open stream may outlive the expiry of its token, or a revocation by another process."""
PINS_SECONDS = 15.0
"""How long a rollback that another replica could not write waits, while Git is available here."""
MISSED_SECONDS = 60.0
"""How long a deployment that another replica has missed reports of waits without an event here."""
SILENT_AT_ONCE = 500
"""So many silent sites are recorded in one transaction."""
RENEW_SECONDS = 10.0
"""How often central checks whether its certificate is due for renewal; it is valid for hours."""


async def run_loops(central: CentralParts) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_core_loops, central)
        access = central.authenticator
        tasks.start_soon(partial(every, needed=access.until_open), "access", ACCESS_SECONDS, access.sweep)
        tasks.start_soon(keep_identity, central)
        unknown = central.unknown_peers
        tasks.start_soon(partial(every, needed=unknown.until_added), "unknown peers", ACCESS_SECONDS, unknown.record)
        tasks.start_soon(
            every, "certificate files", RENEW_SECONDS, lambda: reload_changed_certificates(central.tls_servers)
        )
        if central.access_changes.is_shared:
            tasks.start_soon(every, "accepted", ACCESS_SECONDS, lambda: central.registrar.policy.load(central.store))
        tasks.start_soon(follow_access_changes, central)
        tasks.start_soon(central.auditor.write_behind)
        tasks.start_soon(every, "audit", AUDIT_SECONDS, central.auditor.write_counted)
        tasks.start_soon(every, "audit trim", TRIM_SECONDS, lambda: trim_audit(central))


async def follow_access_changes(central: CentralParts) -> None:
    """Applies decisions of other replicas at once: accepted machines, revoked tokens, and the signing root. If that
    fails, the other loops notice it some seconds later."""
    while True:
        await central.access_changes.wait()
        try:
            await take_access_changes(central)
        except TransientError as error:
            log.warning("access changes not read, will try again", why=str(error))


async def take_access_changes(central: CentralParts) -> None:
    await central.authenticator.tokens.forget()
    await central.registrar.policy.load(central.store)
    await central.authenticator.sweep()
    await renew_own(central)


async def run_core_loops(central: CentralCore) -> None:
    """The essential loops; a simulation runs these and no others. Every replica follows Git, which indexes each
    commit once, and writes the markers that it could not write; the rest is done by one of them at a time."""
    settings = central.settings
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, central)
        tasks.start_soon(every, "markers", settings.sweep_seconds, lambda: mark_sites(central))
        tasks.start_soon(alone, central, PINS, run_pins)
        for part in central.brought:
            for loop in part.loops:
                tasks.start_soon(run_loop, central, loop)
        tasks.start_soon(alone, central, SWEEPS, run_sweeps)


async def alone(central: CentralCore, name: str, work: Callable[[CentralCore], Awaitable[None]]) -> None:
    """Runs `work` while this replica holds the lease, on a store that refuses its writes once it does not."""
    await while_held(
        name, central.leases, lambda lease: work(central.fenced(lease)), seconds=central.settings.lease_seconds
    )


async def run_loop(central: CentralCore, loop: Loop) -> None:
    if loop.replicas is ReplicaChoice.ONE:
        await alone(central, loop.name, loop.run)
    else:
        await loop.run(central)


async def run_pins(central: CentralCore) -> None:
    are_pending, changed = True, EventOr(central.store, PINS_SECONDS)

    async def work() -> None:
        nonlocal are_pending
        are_pending = await settle_pins(central.git_writer, central.clock)

    async def needed() -> None:
        if not are_pending and central.contact.git is None:
            await changed()

    await every("pins", central.settings.sweep_seconds, work, needed=needed)


async def run_sweeps(central: CentralCore) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_for_missed, central)
        tasks.start_soon(find_silent_sites, central)
        tasks.start_soon(every, "trim", TRIM_SECONDS, lambda: trim(central))


async def ask_for_missed(central: CentralCore) -> None:
    """Asks sites to restate what central has missed of their deployments."""
    are_pending, changed = True, EventOr(central.store, MISSED_SECONDS)

    async def work() -> None:
        nonlocal are_pending
        are_pending = await ask_again(central.store, central.questions)

    async def needed() -> None:
        if not are_pending:
            await changed()

    await every("restatements", central.settings.sweep_seconds, work, needed=needed)


async def follow(central: CentralCore) -> None:
    """Indexes every new commit in Git and notifies sites. Problems are shown in /readyz."""
    async for _ in central.git.watch():
        try:
            commit = await central.index.catch_up()
            if commit is not None:
                central.calls.tell(commit)
            central.contact.of_git(None)
        except TransientError as error:
            central.contact.of_git(str(error))
            log.warning("deployments repository unreachable, keeping what is shown", why=str(error))
            await anyio.sleep(RETRY_SECONDS)
            central.git.nudge()
        except PermanentError as error:
            if central.contact.git != str(error):
                log.warning("deployments repository sync failed", why=str(error), hint=error.hint)
            central.contact.of_git(str(error))


async def find_silent_sites(central: CentralCore) -> None:
    """Checks when the site with the oldest report would count as silent, and at most every `sweep_seconds`. That
    nobody called while central was away is no site's silence, so they have the same time to call again."""
    await anyio.sleep(central.settings.site_silence_seconds)
    quiet_seconds = 0.0

    async def work() -> None:
        nonlocal quiet_seconds
        quiet_seconds = await sweep_silence(central)

    async def needed() -> None:
        await anyio.sleep(max(0.0, quiet_seconds - central.settings.sweep_seconds))

    await every("silence", central.settings.sweep_seconds, work, needed=needed)


async def sweep_silence(central: CentralCore) -> float:
    """Reports each offline site once, and returns for how many seconds none can become one. Whether a site is
    reachable is derived, never stored."""
    now, limit = central.clock.now(), timedelta(seconds=central.settings.site_silence_seconds)

    async def newly_silent(reader: Reader) -> tuple[list[Site], datetime]:
        """And when the first of the others would become one."""
        heard = await reader.heard_longest_ago(limit=SILENT_AT_ONCE)
        new = [site for site in heard if site.last_seen is not None and now - site.last_seen > limit]
        return new, min([now, *(site.last_seen for site in heard if site.last_seen is not None)]) + limit

    async def write(tx: Transaction) -> list[Site]:
        new, _ = await newly_silent(tx)
        for site in new:
            await tx.put_site(replace(site, silent_since=now))
        await tx.append_events([_silence(site, now) for site in new])
        return new

    async with central.store.read() as reader:
        new, next_at = await newly_silent(reader)
    if not new:
        return (next_at - now).total_seconds()
    new = await central.store.write(write)
    if new:
        log.warning("sites unreachable", sites=[site.name for site in new][:20], count=len(new))
    return 0.0


def _silence(site: Site, now: datetime) -> NewEvent:
    message = f"site {site.name} cannot be reached; its workloads keep running"
    return NewEvent(EventKind.SITE_PROBLEM, now, message, site=site.name)


async def mark_sites(central: CentralCore) -> None:
    for site in sorted(central.unmarked):
        await mark_site(site, central.git_writer, INTERNAL)
        central.unmarked.discard(site)


async def keep_identity(central: CentralParts) -> None:
    identity = central.identity
    if identity.is_outside:
        await follow_files(identity.credentials, nothing_more)
    period = min(RENEW_SECONDS, central.settings.svid_seconds / 10)
    await every("own certificate", period, lambda: renew_own(central))


async def renew_own(central: CentralParts) -> None:
    await anyio.to_thread.run_sync(central.identity.keep_up)


async def trim_audit(central: CentralParts) -> None:
    now = await retention_now(central.store, central.clock)
    await central.auditor.trim(now - timedelta(days=central.settings.audit_days))


async def trim(central: CentralCore) -> None:
    now = await retention_now(central.store, central.clock)
    keep, before = central.settings.events_max, now - timedelta(days=central.settings.events_days)

    async def work(tx: Transaction) -> None:
        for stream in LogStream:
            await tx.trim_events(stream, keep=keep, before=before)

    await central.store.write(work)
