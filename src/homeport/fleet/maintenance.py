"""What a site operator says of their site: empty this node, leave that as it is for a while.

Each word is decided on what the site knows and becomes one alteration, which the conductor makes durable and then
plans for. It works with central gone; central's wishes arrive as the same words.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from homeport.catalog.deployment import parse_deployment
from homeport.core.model.deployment import Desired, Hold, Pin, Revision
from homeport.core.model.event import NewEvent
from homeport.core.model.node import Node
from homeport.core.model.report import HoldsChanged, NodeChanged, Pinned, Report
from homeport.core.reconcile.holds import active, hold_on, hold_text
from homeport.core.reconcile.plan import short
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.fleet.memory import Memory
from homeport.fleet.revisions import choose_revision
from homeport.ports import Store
from homeport.vocabulary import DeploymentId, EventKind, NodeId, SiteName

HOLD_DAYS_MAX: Final = 90
"""A hold that nobody remembers would keep a site from its updates for good."""


@dataclass(frozen=True, slots=True)
class WentBack:
    """A person's wish to stay at an older revision, and what that revision asks for."""

    pin: Pin
    desired: Desired
    is_here: bool
    """Whether it was said at the site itself."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """`holds` are all that the site has afterwards; None where they are as they were."""

    nodes: tuple[Node, ...] = ()
    holds: tuple[Hold, ...] | None = None
    went_back: WentBack | None = None
    events: tuple[NewEvent, ...] = ()
    reports: tuple[Report, ...] = ()


Decide = Callable[[Memory, datetime], Alteration | None]
"""None where nothing is to be changed."""


def drain(node_id: NodeId, reason: str) -> Decide:
    """The node takes nothing new, and what it has moves to others where that can be."""

    def decide(memory: Memory, now: datetime) -> Alteration:
        node = _node(memory, node_id)
        check_drainable(node)
        return _with_drain(node, reason, EventKind.NODE_DRAINED, f"{node_id} is being emptied: {reason}", now)

    return decide


def undrain(node_id: NodeId) -> Decide:
    def decide(memory: Memory, now: datetime) -> Alteration:
        node = _node(memory, node_id)
        check_drained(node)
        return _with_drain(node, None, EventKind.NODE_UNDRAINED, f"{node_id} takes work again", now)

    return decide


def set_hold(hold: Hold) -> Decide:
    """A second one on the same thing takes the place of the first."""

    def decide(memory: Memory, now: datetime) -> Alteration:
        check_hold(hold, now)
        if hold.deployment_id is not None and hold.deployment_id not in memory.files:
            raise NotFound(f"There is no deployment {hold.deployment_id} at site {memory.site}.")
        others = [each for each in memory.holds if each.deployment_id != hold.deployment_id]
        return _holds_changed(memory, (*others, hold), [hold_event(EventKind.HOLD_SET, hold, now)])

    return decide


def go_back(target: Revision, *, reason: str, author: str, is_here: bool = True) -> Decide:
    """An older revision is wanted until Git has another one than now; Git hears of it through central.

    Who says so at the site itself means it, so no hold keeps it waiting; what comes from elsewhere (`is_here` is
    false) waits for the end of one.
    """

    def decide(memory: Memory, now: datetime) -> Alteration:
        file = memory.files.get(target.deployment_id)
        if file is None or target.deployment_id not in memory.wanted:
            raise NotFound(f"There is no deployment {target.deployment_id} at site {memory.site}.")
        pin = Pin(target.deployment_id, target.revision, target.content, file.revision, reason, author, now)
        hold = hold_on(memory.holds, target.deployment_id, now)
        under_hold = "" if hold is None else f" ({_under_hold(hold, is_here)})"
        event = NewEvent(
            EventKind.DEPLOYMENT_PINNED,
            now,
            f"{file.name} goes back to {target.app_version}, revision {short(target.revision)}: {reason}{under_hold}",
            memory.site,
            deployment_id=target.deployment_id,
            data={"revision": pin.revision, "over": pin.over, "author": author, "reason": reason},
        )
        desired = parse_deployment(target.content, file.path, memory.site)
        return Alteration(went_back=WentBack(pin, desired, is_here), events=(event,), reports=(Pinned(pin),))

    return decide


def _under_hold(hold: Hold, is_here: bool) -> str:
    return f"at once, though it is {hold_text(hold)}" if is_here else f"when that ends: {hold_text(hold)}"


async def older_revision(store: Store, memory: Memory, deployment_id: DeploymentId, to: str | None) -> Revision:
    """What going back would lead to at this site. Raises NotFound or Conflict."""
    async with store.read() as reader:
        kept, history = await reader.revisions(deployment_id), await reader.history(deployment_id)
    current = memory.desired(deployment_id)
    if current is None:
        raise NotFound(f"There is no deployment {deployment_id} at site {memory.site}.")
    return choose_revision(kept, history, to, current=current.revision, name=current.name)


def lift_hold(deployment_id: DeploymentId | None, *, by: str) -> Decide:
    def decide(memory: Memory, now: datetime) -> Alteration:
        found = find_hold(memory.holds, memory.site, deployment_id, now)
        others = tuple(each for each in memory.holds if each is not found)
        return _holds_changed(memory, others, [hold_event(EventKind.HOLD_LIFTED, found, now, by=by)])

    return decide


def expire_holds(memory: Memory, now: datetime) -> Alteration | None:
    """Holds end by themselves; that is an event like any other."""
    lasting = active(memory.holds, now)
    if len(lasting) == len(memory.holds):
        return None
    ended = [hold for hold in memory.holds if hold not in lasting]
    return _holds_changed(memory, lasting, [hold_event(EventKind.HOLD_LIFTED, hold, now) for hold in ended])


class OwnKeeper:
    """What a site does for its own operator, with central there or not."""

    def __init__(self, alter: Callable[[Decide], Awaitable[None]]) -> None:
        self._alter = alter

    async def drain(self, node: Node, reason: str) -> None:
        await self._alter(drain(node.id, reason))

    async def undrain(self, node: Node) -> None:
        await self._alter(undrain(node.id))

    async def hold(self, hold: Hold) -> None:
        await self._alter(set_hold(hold))

    async def release(self, site: SiteName, deployment_id: DeploymentId | None, *, by: str) -> None:
        await self._alter(lift_hold(deployment_id, by=by))


# --- what a person may ask, judged alike at central and at the site -------------------------------------------


def check_drainable(node: Node) -> None:
    if node.drain is not None:
        raise Conflict(
            f"Node {node.id} is drained already: {node.drain}.",
            hint=f"Take it back:  homeport nodes undrain {node.id}",
        )


def check_drained(node: Node) -> None:
    if node.drain is None:
        raise Conflict(f"Node {node.id} is not drained.", hint="See  homeport nodes list")


def check_hold(hold: Hold, now: datetime) -> None:
    """Raises InvalidInput with the field that is wrong."""
    problems = []
    if not hold.reason.strip():
        problems.append(Problem("reason", "must say why, for whoever waits for the update will ask."))
    if hold.expires_at <= now:
        problems.append(Problem("expires_at", f"has passed: it is {now:%Y-%m-%d %H:%M} UTC already."))
    elif hold.expires_at > now + timedelta(days=HOLD_DAYS_MAX):
        problems.append(Problem("expires_at", f"is too far away: a hold lasts at most {HOLD_DAYS_MAX} days."))
    if problems:
        raise InvalidInput(problems=problems)


def find_hold(holds: Sequence[Hold], site: SiteName, deployment_id: DeploymentId | None, now: datetime) -> Hold:
    found = next((hold for hold in active(holds, now) if hold.deployment_id == deployment_id), None)
    if found is None:
        what = f"Site {site}" if deployment_id is None else f"Deployment {deployment_id}"
        raise NotFound(f"{what} is not held.", hint=f"See what is:  homeport sites show {site}")
    return found


def _node(memory: Memory, node_id: NodeId) -> Node:
    node = memory.nodes.get(node_id)
    if node is None:
        raise NotFound(f"There is no node {node_id}.", hint="List them:  homeport nodes list")
    return node


def _with_drain(node: Node, reason: str | None, kind: EventKind, message: str, now: datetime) -> Alteration:
    after = replace(node, drain=reason)
    event = NewEvent(kind, now, message, site=node.site, node_id=node.id, data={"reason": reason or ""})
    return Alteration(nodes=(after,), events=(event,), reports=(NodeChanged(after),))


def _holds_changed(memory: Memory, holds: Sequence[Hold], events: Sequence[NewEvent]) -> Alteration:
    ordered = tuple(sorted(holds, key=lambda hold: hold.deployment_id or ""))
    return Alteration(holds=ordered, events=tuple(events), reports=(HoldsChanged(ordered),))


def hold_event(kind: EventKind, hold: Hold, now: datetime, *, by: str = "") -> NewEvent:
    what = f"site {hold.site}" if hold.deployment_id is None else f"deployment {hold.deployment_id} at {hold.site}"
    ended = f"{what} is free again" + (f", released by {by}" if by else "")
    message = f"{what} is {hold_text(hold)}" if kind is EventKind.HOLD_SET else ended
    data = {"reason": hold.reason, "author": hold.author, "expires_at": hold.expires_at.isoformat()}
    return NewEvent(kind, now, message, site=hold.site, deployment_id=hold.deployment_id, data=data)
