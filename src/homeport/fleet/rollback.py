"""Goes back to an older revision at a person's word, from central.

The older content becomes the file in Git again, byte for byte, so its digest is the one that was good. Where Git
cannot be written the wish is kept as a pin, the site is asked to go back at once, and Git hears of it on its return;
a revision that somebody else has pushed meanwhile wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from homeport.catalog.deployment import deployment_path
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Pin, Revision
from homeport.core.model.event import Deployment, NewEvent
from homeport.core.reconcile.holds import hold_on, hold_text
from homeport.core.reconcile.plan import short
from homeport.errors import Conflict, GitUnavailable, TransientError
from homeport.fleet.deploy import Desk
from homeport.fleet.overview import find_deployment
from homeport.fleet.revisions import choose_revision
from homeport.ports import Change, Clock, RollBack, Transaction
from homeport.vocabulary import Commit, EventKind

log = structlog.get_logger("homeport.fleet.rollback")


@dataclass(frozen=True, slots=True)
class WentBack:
    deployment: Deployment
    target: Revision
    commit: Commit | None
    """None while Git cannot be written: the site was told, or will hear of it from Git."""
    site_told: bool = False
    waits: str | None = None
    """The hold that keeps the site as it is; who goes back at the site itself does not wait for it."""


async def roll_back(text: str, to: str | None, *, reason: str, caller: Caller, desk: Desk, clock: Clock) -> WentBack:
    """Raises NotFound or Conflict where there is nothing to go back to."""
    row, target = await choose(text, to, desk)
    async with desk.store.read() as reader:
        hold = hold_on(await reader.holds(row.site), row.id, clock.now())
    waits = None if hold is None else hold_text(hold)
    pin = Pin(row.id, target.revision, target.content, row.revision, reason, caller.name, clock.now())
    try:
        commit = await write_pin(pin, row, desk)
    except GitUnavailable as error:
        told = await _keep(pin, row, desk)
        log.warning("git cannot be written, going back all the same", deployment=row.id, why=str(error))
        return WentBack(row, target, None, told, waits)
    if commit is None:
        raise Conflict(
            f'"{row.name}" at site "{row.site}" has just been changed by somebody else; nothing was done.',
            hint="Look at it again:  homeport deployments show",
        )
    return WentBack(row, target, commit, waits=waits)


async def choose(text: str, to: str | None, desk: Desk) -> tuple[Deployment, Revision]:
    """The deployment, and the revision that going back would lead to."""
    async with desk.store.read() as reader:
        row = await find_deployment(reader, text)
        if not row.wanted:
            raise Conflict(f'"{row.name}" at site "{row.site}" is no longer wanted; there is nothing to go back to.')
        kept, history = await reader.revisions(row.id), await reader.history(row.id)
    return row, choose_revision(kept, history, to, current=row.revision, name=row.name)


async def write_pin(pin: Pin, row: Deployment, desk: Desk) -> Commit | None:
    """Puts the pinned content into Git; None when Git wants something else by now. Raises GitUnavailable."""
    outrun = False

    async def decide(head: Commit | None) -> Sequence[Change]:
        nonlocal outrun
        if head is not None:
            await desk.index.follow(head)
        async with desk.store.read() as reader:
            now = await reader.deployment(row.id)
        outrun = now is None or not now.wanted or now.revision != pin.over
        return [] if outrun else [Change(deployment_path(row.site, row.id), pin.content)]

    message = f"roll back {row.name} at {row.site} to {short(pin.revision)}\n\n{pin.reason}\n\n{row.site}/{row.id}"
    commit = await desk.git.commit(decide, message=message, author=pin.author)
    if commit is None or outrun:
        return None
    await desk.index.follow(commit)
    desk.calls.tell(commit)
    log.info("went back", deployment=row.id, revision=pin.revision, commit=commit[:12], by=pin.author)
    return commit


async def settle_pins(desk: Desk, clock: Clock) -> None:
    """Writes what people went back to while Git was gone, as far as nobody wants something else by now."""
    async with desk.store.read() as reader:
        pins = await reader.pins()
        rows = {row.id: row for row in await reader.deployments_by_ids([pin.deployment_id for pin in pins])}
    for pin in pins:
        row = rows.get(pin.deployment_id)
        try:
            commit = None if row is None else await write_pin(pin, row, desk)
        except TransientError:
            return  # Git is still gone; the pins stay.
        await _settled(pin, row, commit, desk, clock)


async def _settled(pin: Pin, row: Deployment | None, commit: Commit | None, desk: Desk, clock: Clock) -> None:
    def event() -> NewEvent | None:
        if row is None or (commit is None and row.revision == pin.revision):
            return None
        what = "is now in Git too" if commit else "gives way to what Git wants by now"
        return NewEvent(
            EventKind.DEPLOYMENT_PINNED,
            clock.now(),
            f"{row.name} at {row.site}: going back to {short(pin.revision)} {what}",
            site=row.site,
            deployment_id=row.id,
            data={"revision": pin.revision, "over": pin.over, "author": pin.author, "commit": commit},
        )

    async def work(tx: Transaction) -> None:
        if pin in await tx.pins():
            await tx.drop_pins([pin.deployment_id])
        told = event()
        await tx.append_events([] if told is None else [told])

    await desk.store.write(work)


async def _keep(pin: Pin, row: Deployment, desk: Desk) -> bool:
    await desk.store.write(lambda tx: tx.put_pin(pin))
    return desk.calls.ask(row.site, RollBack(row.id, pin.revision, pin.reason, pin.author))
