"""Plan checker: refuses a bad plan before any part of it is recorded or sent.

It knows only the invariants that no plan may break, and checks every plan against them. When the plan of one
deployment breaks one, that deployment is set aside with the reason, and the others continue.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from homeport.core.lifecycle.deployment import DEPLOYMENT
from homeport.core.lifecycle.machine import Stale
from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Instance, Transition
from homeport.core.reconcile.holds import HELD, active
from homeport.core.reconcile.plan import Move, Planner, View, in_order
from homeport.errors import IllegalTransition, InvariantViolated
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import UNPLACED, Actor, DeploymentId, Generation, NodeId, OrderKind, PlacementMode
from homeport.vocabulary import State as S
from homeport.vocabulary import Trigger as H


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan of which every move may be carried out."""

    moves: tuple[Move, ...]
    set_aside: Mapping[DeploymentId, str]
    """Deployments that could not be planned, or whose plan was refused, with the reason: they stay unchanged."""


def checked_plan(view: View, now: datetime, only: Collection[DeploymentId] | None = None) -> Checked:
    """Plans each deployment on its own: an exception in one does not affect the others."""
    planner = Planner(view, now)
    moves: list[Move] = []
    set_aside: dict[DeploymentId, str] = {}
    for deployment_id in planner.concerned(only):
        if deployment_id in view.damaged:
            set_aside[deployment_id] = view.damaged[deployment_id]
            continue
        try:
            own = planner.moves_of(deployment_id)
            check(view, planner.instances_of(deployment_id), own, now)
            moves += own
        except Exception as error:  # noqa: BLE001 - one bad deployment must not affect the others
            set_aside[deployment_id] = str(error) if isinstance(error, InvariantViolated) else repr(error)
    return Checked(in_order(moves), set_aside)


def check(view: View, instances: Sequence[Instance], moves: Sequence[Move], now: datetime) -> None:
    """Raises InvariantViolated with everything that is wrong with the moves of one deployment."""
    if not moves:
        return
    case = _Case(view, {item.node_id: item for item in instances}, moves, now)
    faults = [fault for rule in RULES for fault in rule(case)]
    if faults:
        raise InvariantViolated(f"a plan was refused: {'; '.join(dict.fromkeys(faults))}")


def older_orders(
    pairs: Sequence[tuple[Move, Transition]], instances: Mapping[tuple[DeploymentId, NodeId], Instance]
) -> dict[DeploymentId, str]:
    """The deployments with an order that is not newer than its instance's generation, or than the order before it in
    the plan, and why: their nodes would refuse it. A wrong number counts against its own deployment alone."""
    refused: dict[DeploymentId, str] = {}
    last = Generation(0)
    for move, transition in pairs:
        if move.order is None:
            continue
        known = instances.get((move.deployment_id, move.node_id))
        highest = max(last, Generation(0) if known is None else known.generation)
        if transition.generation <= highest:
            order = f"order {transition.generation} for {move.node_id} is not newer than {highest}"
            refused.setdefault(move.deployment_id, f"a plan was refused: {order}")
        last = max(last, transition.generation)
    return refused


@dataclass(frozen=True, slots=True)
class _Case:
    view: View
    instances: Mapping[NodeId, Instance]
    moves: Sequence[Move]
    now: datetime

    @property
    def deployment_id(self) -> DeploymentId:
        return self.moves[0].deployment_id

    def orders(self, kind: OrderKind) -> list[Move]:
        return [move for move in self.moves if move.order is kind]


def _one_deployment(case: _Case) -> Iterator[str]:
    if {move.deployment_id for move in case.moves} != {case.deployment_id}:
        yield "moves of several deployments are mixed"
    if case.deployment_id in case.view.unreadable:
        yield "its file cannot be read, so it stays as it is"
    yield from (f"no reason is given for {move.trigger} on {move.node_id}" for move in case.moves if not move.why)


def _known_nodes(case: _Case) -> Iterator[str]:
    for move in case.moves:
        if move.order is not None and move.node_id not in case.view.nodes:
            yield f"an order for {move.node_id or 'no node'}, which is not a node of the site"


def _one_order_each(case: _Case) -> Iterator[str]:
    ordered = [move.node_id for move in case.moves if move.order is not None]
    yield from (f"two orders for {node_id}" for node_id in sorted(set(ordered)) if ordered.count(node_id) > 1)


def _known_releases(case: _Case) -> Iterator[str]:
    """An order is for the wanted release, or for one being rolled back to."""
    desired = case.view.desired.get(case.deployment_id)
    for move in case.orders(OrderKind.APPLY):
        is_past = move.revision is not None and (case.deployment_id, move.revision) in case.view.past
        if not is_past and (desired is None or move.revision != desired.revision):
            yield f"an order for revision {move.revision}, which is not known here"


def _legal_steps(case: _Case) -> Iterator[str]:
    states = {node_id: item.state for node_id, item in case.instances.items()}
    for move in case.moves:
        before = states.get(move.node_id, DEPLOYMENT.start)
        if move.begins:
            if states.get(move.node_id, S.DELETED) is not S.DELETED:
                yield f"{move.node_id or 'no node'} has an instance already, which is {before}"
            before = DEPLOYMENT.start
        try:
            step = DEPLOYMENT.step(before, move.trigger, Actor.SITE)
        except IllegalTransition as error:
            yield str(error)
            continue
        if isinstance(step, Stale):
            yield f"{move.trigger} while {before} changes nothing"
        states[move.node_id] = step.state


def _no_work_for_drained_nodes(case: _Case) -> Iterator[str]:
    for move in case.moves:
        node = case.view.nodes.get(move.node_id)
        if move.begins and node is not None and node.drain is not None:
            yield f"{move.node_id} is drained and would get something new"


def _not_too_many(case: _Case) -> Iterator[str]:
    desired = case.view.desired.get(case.deployment_id)
    if desired is None or desired.placement.mode is PlacementMode.EACH:
        return
    begun = sum(move.trigger is H.SCHEDULED for move in case.moves)
    if begun > _count(desired):
        yield f"{begun} instances would be started, and {_count(desired)} are wanted"


def _make_before_break(case: _Case) -> Iterator[str]:
    """While its file exists, a release that runs on a node of the site is removed only when a successor is healthy,
    or when the wanted number runs without it."""
    desired = case.view.desired.get(case.deployment_id)
    if desired is None:
        return
    leaving = {move.node_id for move in case.orders(OrderKind.REMOVE)}
    staying = [item for key, item in case.instances.items() if key in case.view.nodes and key not in leaving]
    is_healthy = any(
        item.state is S.INSTALLED and desired.revision in (item.revision, item.rejected_revision) for item in staying
    )
    is_each = desired.placement.mode is PlacementMode.EACH
    if is_healthy or (not is_each and sum(map(_runs, staying)) >= _count(desired)):
        return
    for node_id in sorted(leaving):
        if node_id in case.instances and _runs(case.instances[node_id]):
            yield f"what runs on {node_id} would be removed, and nothing healthy has taken its place"


def _count(desired: Desired) -> int:
    return desired.placement.count if desired.placement.mode is PlacementMode.COUNT else 1


def _runs(item: Instance) -> bool:
    """Whether a release runs there that can stay."""
    return item.running_revision is not None and item.state is not S.DELETING


def _holds_are_kept(case: _Case) -> Iterator[str]:
    holds = [hold for hold in active(case.view.holds, case.now) if hold.deployment_id in (None, case.deployment_id)]
    if not holds:
        return
    for move in case.moves:
        gone = move.node_id != UNPLACED and move.node_id not in case.view.nodes
        by_hand = (move.deployment_id, move.revision) in case.view.by_hand
        if move.trigger in HELD and not gone and not by_hand:
            yield f"{move.trigger} on {move.node_id or 'no node'} while it is held by {holds[0].author}"


RULES: Final[tuple[Callable[[_Case], Iterator[str]], ...]] = (
    _one_deployment,
    _known_nodes,
    _one_order_each,
    _known_releases,
    _legal_steps,
    _no_work_for_drained_nodes,
    _not_too_many,
    _make_before_break,
    _holds_are_kept,
)
