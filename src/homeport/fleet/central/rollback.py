"""Manual rollback to an older revision, from central.

The older content becomes the file in Git again, byte for byte, so its digest is the one that was good. While Git
cannot be written the request is stored as a pin, the site is asked to roll back at once, and the pin is written to
Git later; a revision that was pushed in between wins. People at the site may go back from a revision that is older or
newer than the one central knows, so pins over different revisions are kept side by side until Git can be read.
"""

from typing import Final

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.events import pinned_event
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Pin, Revision, digest_of_bytes
from homeport.core.model.event import Deployment, NewEvent
from homeport.core.reconcile.holds import hold_on, hold_text
from homeport.core.reconcile.plan import short
from homeport.errors import Conflict, GitUnavailable, InvalidInput, TransientError
from homeport.fleet.central.deploy import GitWriter
from homeport.fleet.central.index import HistoryRewritten
from homeport.fleet.shared.overview import find_deployment
from homeport.fleet.shared.revisions import choose_revision
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Change, Clock, Proposal, RollBack, Transaction
from homeport.vocabulary import Commit, EventKind

log = get_log("homeport.fleet.central.rollback")
WHY_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class RollbackResult:
    deployment: Deployment
    target: Revision
    commit: Commit | None
    """None while Git cannot be written: the site was notified, or will learn it from Git."""
    is_site_informed: bool = False
    waits: str | None = None
    """The hold that delays it at the site; a rollback at the site itself ignores holds."""


async def roll_back(
    text: str, to: str | None, *, reason: str, caller: Caller, git_writer: GitWriter, clock: Clock
) -> RollbackResult:
    """Raises NotFound or Conflict where there is no revision to roll back to."""
    row, target = await choose(text, to, git_writer)
    async with git_writer.store.read() as reader:
        hold = hold_on(await reader.holds(row.site), row.id, clock.now())
    waits = None if hold is None else hold_text(hold)
    pin = Pin(row.id, target.revision, target.content, row.revision, reason, caller.name, clock.now())
    try:
        commit = await write_pin(pin, row, git_writer)
    except GitUnavailable as error:
        is_site_informed = await _keep(pin, row, git_writer)
        log.warning("git write failed, rollback continues", deployment=row.id, why=str(error))
        return RollbackResult(row, target, None, is_site_informed, waits)
    if commit is None:
        raise Conflict(
            f'"{row.name}" at site "{row.site}" has just been changed by another request; nothing was done.',
            hint="Check it:  homeport deployments show",
        )
    return RollbackResult(row, target, commit, waits=waits)


async def choose(text: str, to: str | None, git_writer: GitWriter) -> tuple[Deployment, Revision]:
    """The deployment, and the revision that a rollback would restore."""
    async with git_writer.store.read() as reader:
        row = await find_deployment(reader, text)
        if not row.wanted:
            raise Conflict(f'"{row.name}" at site "{row.site}" is no longer wanted; there is nothing to go back to.')
        kept, history = await reader.revisions(row.id), await reader.history(row.id)
    return row, choose_revision(kept, history, to, current=row.revision, name=row.name)


async def write_pin(pin: Pin, row: Deployment, git_writer: GitWriter) -> Commit | None:
    """Writes the pinned content to Git; None when Git has another revision by now. Raises GitUnavailable, and
    InvalidInput for an invalid file."""
    check_pin(pin, row)

    async def decide(head: Commit | None) -> Proposal:
        async with git_writer.store.read() as reader:
            now = await reader.deployment(row.id)
        title = f"roll back {row.name} at {row.site} to {short(pin.revision)}"
        changes = [Change(deployment_path(row.site, row.id), pin.content)] if _replaces(pin, now) else []
        return Proposal(changes, f"{title}\n\n{pin.reason}\n\n{row.site}/{row.id}")

    commit = await git_writer.write(decide, author=pin.author)
    if commit is None:
        return None
    log.info(
        "rolled back by an operator", deployment=row.id, revision=pin.revision, commit=commit[:12], by=pin.author
    )
    return commit


async def settle_pins(git_writer: GitWriter, clock: Clock) -> bool:
    """Writes rollbacks that were requested while Git was unavailable, unless Git has changed since. A pin that can
    never be written is dropped with an event, and does not block the others. Returns whether there were any."""
    async with git_writer.store.read() as reader:
        pins = await reader.pins()
    if not pins:
        return False
    try:
        await git_writer.index.follow_base(await git_writer.git.fetch())
    except (TransientError, HistoryRewritten):
        return True  # What Git says is unknown; the pins stay.
    async with git_writer.store.read() as reader:
        rows = {row.id: row for row in await reader.deployments_by_ids([pin.deployment_id for pin in pins])}
    # First those that Git has moved on from: what the others write may look like the revision they go back from.
    for pin in sorted(pins, key=lambda pin: _replaces(pin, rows.get(pin.deployment_id))):
        await _settle(pin, rows.get(pin.deployment_id), git_writer, clock)
    return True


def _replaces(pin: Pin, row: Deployment | None) -> bool:
    return row is not None and row.wanted and row.revision == pin.over


async def _settle(pin: Pin, row: Deployment | None, git_writer: GitWriter, clock: Clock) -> None:
    try:
        commit = await write_pin(pin, row, git_writer) if row is not None and _replaces(pin, row) else None
    except (TransientError, HistoryRewritten) as error:
        log.warning("pin write to git failed, will retry", deployment=pin.deployment_id, why=str(error))
    except Exception as error:
        log.exception("pin dropped", deployment=pin.deployment_id, revision=pin.revision)
        await _settled(pin, row, None, git_writer, clock, fault=str(error)[:WHY_MAX])
    else:
        await _settled(pin, row, commit, git_writer, clock)


def check_pin(pin: Pin, row: Deployment) -> None:
    """Raises InvalidInput unless the content is the revision that the pin names, and a valid file of the site."""
    if digest_of_bytes(pin.content) != pin.revision:
        raise InvalidInput(f"The content is not revision {short(pin.revision)}.")
    parse_deployment(pin.content, deployment_path(row.site, row.id), row.site)


async def _settled(
    pin: Pin,
    row: Deployment | None,
    commit: Commit | None,
    git_writer: GitWriter,
    clock: Clock,
    *,
    fault: str | None = None,
) -> None:
    def event() -> NewEvent | None:
        if row is None or (commit is None and row.revision == pin.revision and fault is None):
            return None
        what = "is now in Git too" if commit else "is superseded by what Git wants now"
        if fault is not None:
            what = f"cannot be written to Git and is given up: {fault}"
        return NewEvent(
            EventKind.DEPLOYMENT_PINNED,
            clock.now(),
            f"{row.name} at {row.site}: going back to {short(pin.revision)} {what}",
            site=row.site,
            deployment_id=row.id,
            data={"revision": pin.revision, "over": pin.over, "author": pin.author, "commit": commit},
        )

    async def work(tx: Transaction) -> None:
        kept = await tx.pins([pin.deployment_id])
        if pin not in kept:
            return  # Already settled, or replaced by a newer one.
        await tx.drop_pins([pin.deployment_id])
        for other in kept:
            if other != pin:
                await tx.put_pin(other)
        found = event()
        await tx.append_events([] if found is None else [found])

    await git_writer.store.write(work)


async def _keep(pin: Pin, row: Deployment, git_writer: GitWriter) -> bool:
    async def work(tx: Transaction) -> None:
        await tx.put_pin(pin)
        what = f"rolls back to revision {short(pin.revision)}"
        await tx.append_events([pinned_event(row.site, row.name, pin, what)])

    await git_writer.store.write(work)
    call = RollBack(row.id, pin.revision, pin.reason, pin.author, pin.over, row.commit)
    return await git_writer.calls.ask(row.site, call)
