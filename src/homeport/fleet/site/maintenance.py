"""Commands of a site operator: drain a node, put something on hold.

Each command is decided on the site's state and becomes one alteration, which the conductor makes durable and then
plans for. It works without central; requests from central use the same commands.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from homeport.catalog.deployment import parse_deployment
from homeport.core.events import node_events, pinned_event
from homeport.core.model.deployment import Desired, Hold, Pin, Revision
from homeport.core.model.event import NewEvent
from homeport.core.model.node import Node, Tunable
from homeport.core.model.report import HoldsChanged, NodeChanged, Pinned, Report
from homeport.core.node.tuning import check_tunable
from homeport.core.reconcile.holds import active, hold_on, hold_text
from homeport.core.reconcile.plan import short
from homeport.errors import NotFound
from homeport.fleet.shared.maintenance import check_drainable, check_drained, check_hold, find_hold, hold_event
from homeport.fleet.shared.revisions import choose_revision
from homeport.fleet.site.state import SiteState
from homeport.lazy_dataclass import dataclass
from homeport.ports import Store
from homeport.vocabulary import DeploymentId, EventKind, NodeId, SiteName


@dataclass(frozen=True, slots=True)
class RolledBackAtSite:
    """A manual rollback, and the content of that revision."""

    pin: Pin
    desired: Desired
    is_here: bool
    """Whether it was requested at the site itself."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """`holds` are all holds of the site afterwards; None where they are unchanged."""

    nodes: tuple[Node, ...] = ()
    holds: tuple[Hold, ...] | None = None
    rolled_back: RolledBackAtSite | None = None
    events: tuple[NewEvent, ...] = ()
    reports: tuple[Report, ...] = ()


Decide = Callable[[SiteState, datetime], Alteration | None]
"""None where there is nothing to change."""


def drain(node_id: NodeId, reason: str) -> Decide:
    """The node takes nothing new, and its instances move to other nodes where possible."""

    def decide(memory: SiteState, now: datetime) -> Alteration:
        node = _node(memory, node_id)
        check_drainable(node)
        return _node_changed(node, replace(node, drain=reason), now)

    return decide


def undrain(node_id: NodeId) -> Decide:
    def decide(memory: SiteState, now: datetime) -> Alteration:
        node = _node(memory, node_id)
        check_drained(node)
        return _node_changed(node, replace(node, drain=None), now)

    return decide


def tune(node_id: NodeId, tunable: Tunable) -> Decide:
    """Sets the node's settings; its stream sends them."""

    def decide(memory: SiteState, now: datetime) -> Alteration | None:
        check_tunable(tunable)
        node = _node(memory, node_id)
        return None if node.tunable == tunable else _node_changed(node, replace(node, tunable=tunable), now)

    return decide


def set_hold(hold: Hold) -> Decide:
    """A second hold on the same thing replaces the first."""

    def decide(memory: SiteState, now: datetime) -> Alteration:
        check_hold(hold, now)
        if hold.deployment_id is not None and hold.deployment_id not in memory.files:
            raise NotFound(f"There is no deployment {hold.deployment_id} at site {memory.site}.")
        others = [each for each in memory.holds if each.deployment_id != hold.deployment_id]
        return _holds_changed(memory, (*others, hold), [hold_event(EventKind.HOLD_SET, hold, now)])

    return decide


def roll_back_to(target: Revision, *, reason: str, author: str, is_here: bool = True) -> Decide:
    """An older revision is wanted until Git has another one than now; central writes it to Git.

    A rollback requested at the site itself ignores holds; one requested elsewhere (`is_here` is false) waits until
    they end.
    """

    def decide(memory: SiteState, now: datetime) -> Alteration:
        file = memory.files.get(target.deployment_id)
        if file is None or target.deployment_id not in memory.wanted:
            raise NotFound(f"There is no deployment {target.deployment_id} at site {memory.site}.")
        pin = Pin(target.deployment_id, target.revision, target.content, file.revision, reason, author, now)
        hold = hold_on(memory.holds, target.deployment_id, now)
        under_hold = "" if hold is None else f" ({_under_hold(hold, is_here)})"
        what = f"goes back to {target.app_version}, revision {short(target.revision)}{under_hold}"
        event = pinned_event(memory.site, file.name, pin, what)
        desired = parse_deployment(target.content, file.path, memory.site)
        return Alteration(
            rolled_back=RolledBackAtSite(pin, desired, is_here), events=(event,), reports=(Pinned(pin),)
        )

    return decide


def _under_hold(hold: Hold, is_here: bool) -> str:
    return f"at once, though it is {hold_text(hold)}" if is_here else f"when that ends: {hold_text(hold)}"


async def older_revision(store: Store, memory: SiteState, deployment_id: DeploymentId, to: str | None) -> Revision:
    """The rollback target at this site. Raises NotFound or Conflict."""
    async with store.read() as reader:
        kept, history = await reader.revisions(deployment_id), await reader.history(deployment_id)
    current = memory.desired(deployment_id)
    if current is None:
        raise NotFound(f"There is no deployment {deployment_id} at site {memory.site}.")
    return choose_revision(kept, history, to, current=current.revision, name=current.name)


def lift_hold(deployment_id: DeploymentId | None, *, by: str) -> Decide:
    def decide(memory: SiteState, now: datetime) -> Alteration:
        found = find_hold(memory.holds, memory.site, deployment_id, now)
        others = tuple(each for each in memory.holds if each is not found)
        return _holds_changed(memory, others, [hold_event(EventKind.HOLD_LIFTED, found, now, by=by)])

    return decide


def expire_holds(memory: SiteState, now: datetime) -> Alteration | None:
    """The end of a hold is an event like any other."""
    lasting = active(memory.holds, now)
    if len(lasting) == len(memory.holds):
        return None
    ended = [hold for hold in memory.holds if hold not in lasting]
    return _holds_changed(memory, lasting, [hold_event(EventKind.HOLD_LIFTED, hold, now) for hold in ended])


class OwnKeeper:
    """A site's commands for its own operator, with or without central."""

    def __init__(self, alter: Callable[[Decide], Awaitable[None]]) -> None:
        self._alter = alter

    async def drain(self, node: Node, reason: str) -> None:
        await self._alter(drain(node.id, reason))

    async def undrain(self, node: Node) -> None:
        await self._alter(undrain(node.id))

    async def tune(self, node: Node, tunable: Tunable) -> None:
        await self._alter(tune(node.id, tunable))

    async def hold(self, hold: Hold) -> None:
        await self._alter(set_hold(hold))

    async def release(self, site: SiteName, deployment_id: DeploymentId | None, *, by: str) -> None:
        await self._alter(lift_hold(deployment_id, by=by))


def _node(memory: SiteState, node_id: NodeId) -> Node:
    node = memory.nodes.get(node_id)
    if node is None:
        raise NotFound(f"There is no node {node_id}.", hint="List them:  homeport nodes list")
    return node


def _node_changed(before: Node, after: Node, now: datetime) -> Alteration:
    return Alteration(nodes=(after,), events=tuple(node_events(before, after, now)), reports=(NodeChanged(after),))


def _holds_changed(memory: SiteState, holds: Sequence[Hold], events: Sequence[NewEvent]) -> Alteration:
    ordered = tuple(sorted(holds, key=lambda hold: hold.deployment_id or ""))
    return Alteration(holds=ordered, events=tuple(events), reports=(HoldsChanged(ordered),))
