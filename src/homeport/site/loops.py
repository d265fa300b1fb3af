"""The loops of a site, one line each in `run_loops`. Each runs for as long as the role lives."""

from contextlib import suppress
from functools import partial

import anyio
import structlog

from homeport import __version__
from homeport.adapters.identity.doors import follow_doors
from homeport.adapters.identity.keeping import Nudge, follow_bundle, keep, nothing_more
from homeport.adapters.identity.outside import follow_files
from homeport.errors import NotFound, PeerUnavailable, PermanentError, Refused, TransientError
from homeport.fleet.backoff import Backoff
from homeport.fleet.following import follow
from homeport.fleet.maintenance import Decide, drain, go_back, lift_hold, older_revision, set_hold, undrain
from homeport.fleet.outbox import forward
from homeport.fleet.rounds import every
from homeport.ports import (
    CentralLink,
    DrainNode,
    ExpectNode,
    FromCentral,
    LiftHold,
    Moved,
    NodeIdentities,
    RemoveNode,
    RollBack,
    SecretsChanged,
    SetHold,
    Store,
)
from homeport.site.answers import answer
from homeport.site.identity import SiteIdentity
from homeport.site.parts import SiteCore, SiteParts

log = structlog.get_logger(__name__)

TRIM_SECONDS = 60.0
AUDIT_SECONDS = 5.0
FILES_SECONDS = 10.0
"""How often the certificate that people are shown is looked at."""
ACCESS_SECONDS = 1.0
"""How long an open stream outlives the expiry of its token."""


async def run_loops(site: SiteParts) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_core_loops, site)
        tasks.start_soon(every, "access", ACCESS_SECONDS, site.gate.sweep)
        tasks.start_soon(every, "audit", AUDIT_SECONDS, site.auditor.settle)
        tasks.start_soon(every, "audit trim", TRIM_SECONDS, lambda: site.auditor.trim(site.settings.audit_days))
        if site.identity is not None:
            tasks.start_soon(keep_identity, site.identity)
            tasks.start_soon(every, "files for people", FILES_SECONDS, lambda: follow_doors(site.doors))
        if site.strangers is not None:
            tasks.start_soon(every, "strangers", ACCESS_SECONDS, site.strangers.settle)


async def run_core_loops(site: SiteCore) -> None:
    """What makes a site a site; a simulation runs these and no others."""
    settings, conductor = site.settings, site.conductor
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(follow, site.git, conductor, site.contact.of_git, in_thread=site.in_thread))
        tasks.start_soon(site.sessions.digest_news, conductor.take)
        tasks.start_soon(every, "sweep", settings.sweep_seconds, conductor.sweep)
        tasks.start_soon(every, "trim", TRIM_SECONDS, lambda: trim(site.store, settings.events_max))
        if site.central is not None:
            tasks.start_soon(_forward, site, site.central)
            tasks.start_soon(_listen, site, site.central)
            tasks.start_soon(site.secrets.keep, site.central, conductor)


async def keep_identity(identity: SiteIdentity) -> None:
    """Renews what central signed and what the site signed for itself. Nothing waits for it: a site whose certificate
    has ended goes on with its nodes, and is known again by its key when central is back."""
    membership = identity.membership
    if membership is None:
        await follow_files(identity.client, nothing_more)
        return
    mine, ours, own = Nudge(), Nudge(), Nudge()

    async def authority_renewed() -> None:
        identity.trust_authority()

    async def bundle_changed() -> None:
        identity.server.install_bundle(identity.client.bundle)

    renewals = (
        ("site", lambda: identity.client, identity.renew_client, nothing_more, mine),
        ("site authority", lambda: identity.intermediate, identity.renew_authority, authority_renewed, ours),
        ("site server", lambda: identity.server, identity.renew_server, nothing_more, own),
    )
    async with anyio.create_task_group() as tasks:
        for name, certificate, renew, done, nudge in renewals:
            tasks.start_soon(partial(keep, certificate, renew, done, name=name, nudge=nudge))
        tasks.start_soon(
            partial(follow_bundle, membership, identity.client, on_changed=bundle_changed, nudges=(mine, ours))
        )


async def _forward(site: SiteCore, central: CentralLink) -> None:
    await forward(
        site.store,
        central,
        site.conductor,
        site=site.settings.name,
        epoch=site.epoch,
        software_version=__version__,
        heartbeat_seconds=site.settings.report_seconds,
        chance=site.chance,
    )


async def _listen(site: SiteCore, central: CentralLink) -> None:
    """Central says at once when the repository has moved; without it the poll does, later."""
    backoff = Backoff(chance=site.chance)
    while True:
        try:
            is_first = True
            async for call in central.watch(site.settings.name):
                if is_first:
                    site.secrets.ask()  # What was said of them while nobody listened is lost.
                is_first = False
                backoff.reset()
                await _answer(site, central, call)
        except PeerUnavailable as error:
            log.debug("central's word is not heard", why=str(error))
        except TransientError as error:
            log.warning("central's word cannot be followed now", why=str(error))
        await anyio.sleep(backoff.next_seconds())


async def _answer(site: SiteCore, central: CentralLink, call: FromCentral) -> None:
    match call:
        case Moved():
            site.git.nudge()
        case SecretsChanged():
            site.secrets.ask()
        case ExpectNode():
            await _expect(site, call)
        case RollBack():
            await _go_back(site, call)
        case NodeIdentities():
            await central.answer(site.settings.name, call.question, await answer(site, call))
        case RemoveNode():
            with suppress(NotFound):
                await site.reception.unregister(call.node_id)
        case DrainNode():
            await _alter(site, undrain(call.node_id) if call.reason is None else drain(call.node_id, call.reason))
        case SetHold():
            await _alter(site, set_hold(call.hold))
        case LiftHold():
            await _alter(site, lift_hold(call.deployment_id, by=call.by))


async def _alter(site: SiteCore, decide: Decide) -> None:
    """Central has judged it on what it knew. Where that was not true here, central's wait for it ends unconfirmed."""
    try:
        await site.conductor.alter(decide)
    except PermanentError as error:
        log.warning("central's wish is not for this site", why=str(error))


async def _go_back(site: SiteCore, call: RollBack) -> None:
    try:
        target = await older_revision(site.store, site.conductor.memory, call.deployment_id, call.revision)
    except PermanentError as error:
        log.warning("central asks to go back to what is not known here", why=str(error))
        return
    await _alter(site, go_back(target, reason=call.reason, author=call.author, is_here=False))


async def _expect(site: SiteCore, call: ExpectNode) -> None:
    if site.registrar is None:
        return
    try:
        await site.registrar.expect(call.token)
    except Refused as error:
        log.warning("a join token that central made is of no use here", why=str(error))


async def trim(store: Store, keep: int) -> None:
    await store.write(lambda tx: tx.trim_events(keep))
