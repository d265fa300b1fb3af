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
from homeport.errors import Conflict, NotFound
from homeport.fleet.shared.maintenance import check_drainable, check_drained, check_hold, find_hold, hold_event
from homeport.fleet.shared.revisions import choose_revision
from homeport.fleet.site.state import SiteState
from homeport.lazy_dataclass import dataclass
from homeport.ports import GitSource, RollBack, Store
from homeport.vocabulary import Commit, DeploymentId, EventKind, NodeId, SiteName


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


def roll_back_to(target: Revision, *, reason: str, author: str) -> Decide:
    """An older revision is wanted until Git has another one than now; central writes it to Git. Requested at the site
    itself, it ignores holds."""

    def decide(memory: SiteState, now: datetime) -> Alteration:
        file = _file(memory, target.deployment_id)
        pin = Pin(target.deployment_id, target.revision, target.content, memory.over(file), reason, author, now)
        return _rolled_back(memory, target, pin, now, is_here=True)

    return decide


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Central asks for a rollback, and what was found at the site to judge that."""

    call: RollBack
    kept: Sequence[Revision]
    applied: Commit | None
    has_read: bool
    """Whether `applied` contains all that central had read."""


async def asked(call: RollBack, memory: SiteState, store: Store, git: GitSource) -> RollbackRequest:
    async with store.read() as reader:
        kept = await reader.revisions(call.deployment_id)
    applied = memory.applied
    has_read = call.commit is None or applied is None or await git.is_ancestor(call.commit, applied)
    return RollbackRequest(call, kept, applied, has_read)


def roll_back_as(asked: RollbackRequest) -> Decide:
    """The same at central's request: it waits until holds end. Central has its own record, which a later request may
    have replaced by now, so nothing is reported."""

    def decide(memory: SiteState, now: datetime) -> Alteration:
        call, file = asked.call, _file(memory, asked.call.deployment_id)
        known = memory.over(file)
        over = call.over or known
        if memory.applied != asked.applied or (asked.has_read and over != known):
            raise Conflict(f'Git has a newer revision of "{file.name}" than {short(over)}; that is kept.')
        target = choose_revision(asked.kept, (), call.revision, current=over, name=file.name)
        pin = Pin(target.deployment_id, target.revision, target.content, over, call.reason, call.author, now)
        return _rolled_back(memory, target, pin, now, is_here=False)

    return decide


def _file(memory: SiteState, deployment_id: DeploymentId) -> Desired:
    file = memory.files.get(deployment_id)
    if file is None or deployment_id not in memory.wanted:
        raise NotFound(f"There is no deployment {deployment_id} at site {memory.site}.")
    return file


def _rolled_back(memory: SiteState, target: Revision, pin: Pin, now: datetime, *, is_here: bool) -> Alteration:
    file = memory.files[pin.deployment_id]
    hold = hold_on(memory.holds, pin.deployment_id, now)
    under_hold = "" if hold is None else f" ({_under_hold(hold, is_here)})"
    what = f"rolls back to {target.app_version}, revision {short(pin.revision)}{under_hold}"
    return Alteration(
        rolled_back=RolledBackAtSite(pin, parse_deployment(pin.content, file.path, memory.site), is_here),
        events=(pinned_event(memory.site, file.name, pin, what),),
        reports=(Pinned(pin),) if is_here else (),
    )


def _under_hold(hold: Hold, is_here: bool) -> str:
    return f"immediately, although it is {hold_text(hold)}" if is_here else f"when that ends: {hold_text(hold)}"


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
