"""The loops of a site, one line each in `run_loops`. Each runs while the role runs."""

from contextlib import suppress
from datetime import timedelta
from functools import partial

import anyio
from anyio.abc import TaskGroup

from homeport import __version__
from homeport.adapters.identity.external_svid import follow_files
from homeport.adapters.identity.https_certificates import reload_changed_certificates
from homeport.adapters.identity.renewal import Nudge, follow_bundle, keep, nothing_more
from homeport.errors import (
    HomeportError,
    InvalidInput,
    NotFound,
    PeerUnavailable,
    PermanentError,
    Refused,
    TransientError,
    UnknownKind,
)
from homeport.fleet.shared.backoff import Backoff
from homeport.fleet.shared.periodic import every
from homeport.fleet.shared.retention import retention_now
from homeport.fleet.site.git_sync import follow
from homeport.fleet.site.maintenance import asked, drain, lift_hold, roll_back_as, set_hold, tune, undrain
from homeport.fleet.site.reports.outbox import forward
from homeport.log import get_log
from homeport.ports import (
    Addressed,
    Ask,
    CentralLink,
    DrainNode,
    ExpectNode,
    FromCentral,
    LiftHold,
    Moved,
    NodeIdentities,
    RemoveNode,
    Request,
    Restate,
    RollBack,
    SecretsChanged,
    SetHold,
    Store,
    Transaction,
    TuneNode,
    UnknownRequest,
)
from homeport.site.identity import SiteIdentity
from homeport.site.identity_requests import answer
from homeport.site.parts import SiteCore, SiteParts
from homeport.vocabulary import LogStream
from homeport.wire.answers import Answer, encode_error

log = get_log(__name__)

TRIM_SECONDS = 60.0
AUDIT_SECONDS = 5.0
FILES_SECONDS = 10.0
"""How often the certificate for users is checked for changes."""
TUNNELS_SECONDS = 1.0
"""How long a tunnel may outlive the acceptance of its node."""
ACCESS_SECONDS = 1.0
"""How long an open stream may outlive the expiry of its token."""


async def run_loops(site: SiteParts) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_core_loops, site)
        access = site.authenticator
        tasks.start_soon(partial(every, needed=access.until_open), "access", ACCESS_SECONDS, access.sweep)
        tasks.start_soon(site.auditor.write_behind)
        tasks.start_soon(every, "audit", AUDIT_SECONDS, site.auditor.write_counted)
        tasks.start_soon(every, "audit trim", TRIM_SECONDS, lambda: trim_audit(site))
        if site.identity is not None:
            tasks.start_soon(keep_identity, site.identity)
            tasks.start_soon(
                every, "certificate files", FILES_SECONDS, lambda: reload_changed_certificates(site.tls_servers)
            )
        if site.unknown_peers is not None:
            unknown = site.unknown_peers
            tasks.start_soon(
                partial(every, needed=unknown.until_added), "unknown peers", ACCESS_SECONDS, unknown.record
            )


async def run_core_loops(site: SiteCore) -> None:
    """The essential loops; a simulation runs these and no others."""
    settings, conductor = site.settings, site.conductor
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(follow, site.git, conductor, site.contact.of_git, in_thread=site.in_thread))
        tasks.start_soon(site.sessions.record_news, conductor.take)
        tasks.start_soon(every, "sweep", settings.sweep_seconds, conductor.sweep)
        tasks.start_soon(conductor.planner.run)
        if site.tunnels is not None:
            tunnels = site.tunnels
            tasks.start_soon(
                partial(every, needed=tunnels.until_attached), "node tunnels", TUNNELS_SECONDS, tunnels.check
            )
        for part in site.brought:
            for run in part.loops:
                tasks.start_soon(run)
        tasks.start_soon(every, "trim", TRIM_SECONDS, lambda: trim(site.store, settings.events_max))
        if site.central is not None:
            tasks.start_soon(_forward, site, site.central)
            tasks.start_soon(_listen, site, site.central)
            tasks.start_soon(site.secrets.sync, site.central, conductor)


async def keep_identity(identity: SiteIdentity) -> None:
    """Renews what central signed and what the site signed for itself. Nothing waits for it: a site with an expired
    certificate continues with its nodes, and is recognised by its key when central is back."""
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
        lineage=site.lineage,
        ids=site.ids,
        software_version=__version__,
        heartbeat_seconds=site.settings.report_seconds,
        chance=site.chance,
    )


async def _listen(site: SiteCore, central: CentralLink) -> None:
    """Central announces at once that the repository has changed; without central the poll finds it, later."""
    backoff = Backoff(chance=site.chance)
    async with anyio.create_task_group() as tasks:
        while True:
            try:
                is_first = True
                async for call in central.watch(site.settings.name):
                    if is_first:
                        _central_is_back(site)
                    is_first = False
                    backoff.reset()
                    await _take(site, central, call, tasks)
            except PeerUnavailable as error:
                log.debug("watch stream to central lost", why=str(error))
            except TransientError as error:
                log.warning("request from central failed, will retry", why=str(error))
            await anyio.sleep(backoff.next_seconds())


def _central_is_back(site: SiteCore) -> None:
    """Notifications sent while disconnected are lost."""
    site.secrets.ask()
    for part in site.brought:
        if part.on_central is not None:
            part.on_central()


async def _take(site: SiteCore, central: CentralLink, call: FromCentral, tasks: TaskGroup) -> None:
    """A refused request is answered, where central waits for that. Questions to capabilities may take a while, and
    are answered side by side."""
    match call:
        case UnknownRequest():
            site.refused[UnknownKind.code] += 1
            log.warning("request from central refused", kind=call.kind, why=call.why)
            await _refuse(site, central, call.reply_to, _unknown(site, call))
        case Addressed(request=Ask() as question):
            await site.asked.acquire()
            tasks.start_soon(_answer, site, central, question, call.reply_to)
        case Addressed():
            try:
                await _carry_out(site, central, call.request)
            except PermanentError as error:
                log.warning("request from central refused", why=str(error))
                await _refuse(site, central, call.reply_to, error)
            else:
                if isinstance(call.request, ExpectNode | Restate):  # No report shows that it is done.
                    await _reply(site, central, call.reply_to, {})
        case _:
            try:
                await _carry_out(site, central, call)
            except PermanentError as error:
                log.warning("request from central refused", why=str(error))


def _unknown(site: SiteCore, call: UnknownRequest) -> UnknownKind:
    return UnknownKind(
        f'Site {site.settings.name} runs version {__version__} and cannot do "{call.kind}": {call.why}.',
        hint="Upgrade the site, then ask again.",
    )


async def _answer(site: SiteCore, central: CentralLink, question: Ask, reply_to: str) -> None:
    try:
        try:
            answer = await _ask(site, question)
        except HomeportError as error:
            log.warning("question from central refused", topic=question.topic, why=str(error))
            answer = encode_error(error)
        except Exception as error:  # A question that a capability stumbles over harms itself alone.
            log.exception("question from central failed", topic=question.topic)
            answer = encode_error(Refused(f"The site could not answer: {type(error).__name__}."))
        await _reply(site, central, reply_to, answer)
    finally:
        site.asked.release()


async def _ask(site: SiteCore, question: Ask) -> Answer:
    for part in site.brought:
        if (asked := part.asked.get(question.topic)) is not None:
            return await asked(question.content)
    raise _unknown(site, UnknownRequest(question.topic, "this version does not know it"))


async def _refuse(site: SiteCore, central: CentralLink, reply_to: str, error: HomeportError) -> None:
    if reply_to:
        await _reply(site, central, reply_to, encode_error(error))


async def _reply(site: SiteCore, central: CentralLink, reply_to: str, answer: Answer) -> None:
    try:
        await central.answer(site.settings.name, reply_to, answer)
    except (PeerUnavailable, NotFound) as lost:
        log.debug("reply to central not delivered", why=str(lost))


async def _carry_out(site: SiteCore, central: CentralLink, call: Moved | Request) -> None:
    """Raises PermanentError for what cannot be done in the current state."""
    match call:
        case Moved():
            site.git.nudge()
        case SecretsChanged():
            site.secrets.ask()
        case ExpectNode():
            await _expect(site, call)
        case RollBack():
            await _roll_back(site, call)
        case NodeIdentities():
            await central.answer(site.settings.name, call.question, await answer(site, call))
        case RemoveNode():
            with suppress(NotFound):
                await site.reception.unregister(call.node_id)
        case DrainNode():
            decide = undrain(call.node_id) if call.reason is None else drain(call.node_id, call.reason)
            await site.conductor.alter(decide)
        case TuneNode():
            await site.conductor.alter(tune(call.node_id, call.tunable))
        case SetHold():
            await site.conductor.alter(set_hold(call.hold))
        case LiftHold():
            await site.conductor.alter(lift_hold(call.deployment_id, by=call.by))
        case Restate():
            await site.conductor.restate(call.deployment_ids)
        case Ask():
            raise InvalidInput("A question needs an address for its answer.", hint="Send it with reply_to.")


async def _roll_back(site: SiteCore, call: RollBack) -> None:
    found = await asked(call, site.conductor.memory, site.store, site.git)
    await site.conductor.alter(roll_back_as(found))


async def _expect(site: SiteCore, call: ExpectNode) -> None:
    if site.registrar is not None:
        await site.registrar.expect(call.token)


async def trim_audit(site: SiteParts) -> None:
    now = await retention_now(site.store, site.clock)
    await site.auditor.trim(now - timedelta(days=site.settings.audit_days))


async def trim(store: Store, keep: int) -> None:
    async def work(tx: Transaction) -> None:
        for stream in LogStream:
            await tx.trim_events(stream, keep=keep)

    await store.write(work)
