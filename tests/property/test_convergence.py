"""Whatever a site finds, obeying its plans makes it right without taking away what runs, and then it rests."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.lifecycle.replay import replay
from homeport.core.model.deployment import Desired, Hold
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.node import Node
from homeport.core.reconcile.check import checked_plan
from homeport.core.reconcile.orders import OrderContext, unanswered
from homeport.core.reconcile.plan import Move, View, can_roll_back, plan
from homeport.core.secrets import missing, reference, versions_for
from homeport.vocabulary import (
    UNPLACED,
    Actor,
    Code,
    DeploymentId,
    Digest,
    Generation,
    Incarnation,
    Liveness,
    OrderKind,
    State,
    Trigger,
)
from tests.support.builders import HOME, NOW, a_desired, a_node, an_instance, deployment_id, revision

NAMES = ("a", "b", "c")
VERSIONS = ("first", "second", "third")
ROUND = timedelta(seconds=301)
"""Longer than every wait of a site."""
ROUNDS = 14
"""Enough for each attempt of an update and of going back, one after the other."""
SECRET = "key"
MUCH = "900Gi"


@dataclass(frozen=True)
class Fleet:
    """A site, and which releases turn out bad on its nodes."""

    view: View
    bad: frozenset[Digest] = frozenset()
    now: datetime = NOW


def with_secret(desired: Desired) -> Desired:
    part = replace(desired.release.components[0], environment={"KEY": reference(SECRET)})
    return replace(desired, release=replace(desired.release, components=(part,)))


@st.composite
def wishes(draw: st.DrawFn, number: int) -> Desired:
    desired = a_desired(
        number,
        at=draw(st.sampled_from(VERSIONS)),
        nodes=draw(st.sampled_from([(), (), ("a",), ("nothere",)])),
        count=draw(st.sampled_from([None, None, 1, 2])),
        selector=draw(st.sampled_from(["", "", "zone=x"])),
        memory=draw(st.sampled_from(["", "", "", MUCH])),
    )
    rollback = draw(st.booleans())
    desired = replace(desired, policy=replace(desired.policy, rollback=rollback))
    return with_secret(desired) if draw(st.booleans()) else desired


@st.composite
def instances(draw: st.DrawFn, number: int, name: str) -> Instance:
    state = draw(st.sampled_from([state for state in State if state not in (State.DELETED, State.PENDING)]))
    codes = [Code.REMOVE_FAILED, Code.EXITED, Code.NODE_OFFLINE, Code.IMAGE_PULL_FAILED, Code.NO_ELIGIBLE_NODE]
    code = draw(st.sampled_from(codes)) if state is State.FAILED else None
    found = an_instance(number, name, state=state, at=draw(st.sampled_from(VERSIONS)))
    if state is not State.INSTALLED:
        before = st.sampled_from([revision("first"), revision("second")])
        needs_one = state in (State.UPDATING, State.ROLLINGBACK) or code is Code.NO_ELIGIBLE_NODE
        runs = needs_one or (state is not State.INSTALLING and draw(st.booleans()))
        found = replace(found, running_revision=draw(before) if runs else None)
    elif draw(st.sampled_from([False, False, True])):
        found = replace(found, rejected_revision=revision(draw(st.sampled_from(VERSIONS))))
    is_due = code in (Code.EXITED, Code.IMAGE_PULL_FAILED) and draw(st.booleans())
    return replace(
        found, failure=None if code is None else Failure(code, "it failed"), next_at=NOW if is_due else None
    )


@st.composite
def machines(draw: st.DrawFn, name: str) -> Node:
    return a_node(
        name,
        liveness=draw(st.sampled_from([Liveness.LIVE, Liveness.LIVE, Liveness.LIVE, Liveness.STALE, Liveness.LOST])),
        labels={"zone": draw(st.sampled_from("xy"))},
        drain=draw(st.sampled_from([None, None, None, "new disk"])),
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    desired = [draw(wishes(number)) for number in sorted(draw(st.sets(st.integers(1, 3))))]
    nodes = [draw(machines(name)) for name in sorted(draw(st.sets(st.sampled_from(NAMES))))]
    placed = [
        draw(instances(number, name))
        for number in range(1, 5)
        for name in sorted(draw(st.sets(st.sampled_from(NAMES))))
    ]
    whom = draw(st.sampled_from([None, None, None, "all", "one"]))
    hold = Hold(HOME, deployment_id(1) if whom == "one" else None, "a shift", "anna", NOW, NOW + timedelta(days=900))
    past = [a_desired(number, at=at) for number in range(1, 5) for at in VERSIONS]
    view = View(
        desired={item.id: item for item in desired},
        unreadable=frozenset(),
        nodes={node.id: node for node in nodes},
        instances={item.key: item for item in placed},
        secrets=draw(st.sampled_from([{}, {SECRET: 1}])),
        holds=() if whom is None else (hold,),
        past={(item.id, item.revision): item for item in past},
    )
    return Fleet(view, bad=frozenset(map(revision, draw(st.sets(st.sampled_from(VERSIONS), max_size=2)))))


# --- a fleet that obeys ---------------------------------------------------------------------------------------


def obey(fleet: Fleet, moves: tuple[Move, ...]) -> Fleet:
    """Every move is recorded; nodes that can be heard end each order they have, well or badly."""
    view, known = fleet.view, dict(fleet.view.instances)
    given = dict(view.given)
    for number, move in enumerate(moves):
        key = (move.deployment_id, move.node_id)
        before = known.get(key)
        generation = Generation(1000 + number) if move.order is not None or before is None else before.generation
        known[key], _ = replay(before, _step(move, before, Incarnation(100 + number), generation, fleet.now))
        if move.order is OrderKind.APPLY:
            given[key] = _given(move, view)
    for key, item in list(known.items()):
        node = view.nodes.get(key[1])
        if node is not None and node.liveness is not Liveness.LOST:
            known[key] = _ended(item, fleet)
    living = {key: item for key, item in known.items() if item.state is not State.DELETED}
    return replace(fleet, view=replace(view, instances=living, given=given), now=fleet.now + ROUND)


def _step(
    move: Move, before: Instance | None, fresh: Incarnation, generation: Generation, now: datetime
) -> Transition:
    return Transition(
        deployment_id=move.deployment_id,
        node_id=move.node_id,
        incarnation=fresh if move.begins or before is None else before.incarnation,
        trigger=move.trigger,
        actor=Actor.SITE,
        reason=move.why,
        at=now,
        generation=generation,
        revision=move.revision,
        failure=move.failure,
    )


def _given(move: Move, view: View) -> dict[str, int]:
    desired = view.desired.get(move.deployment_id)
    if desired is None or desired.revision != move.revision or missing(desired.release, view.secrets):
        return {}
    return dict(versions_for(desired.release, view.secrets))


def _ended(item: Instance, fleet: Fleet) -> Instance:
    if item.state is State.DELETING:
        return _told(item, Trigger.REMOVED, fleet.now)
    if item.state not in (State.INSTALLING, State.UPDATING, State.ROLLINGBACK):
        return item
    if item.revision not in fleet.bad:
        return _told(item, Trigger.HEALTHY, fleet.now)
    desired = fleet.view.desired.get(item.deployment_id)
    known = OrderContext(
        now=fleet.now,
        policy=None if desired is None else desired.policy,
        can_roll_back=can_roll_back(item, fleet.view.past),
    )
    return replay(item, unanswered(item, Failure(Code.EXITED, "it ended"), known))[0]


def _told(item: Instance, trigger: Trigger, now: datetime) -> Instance:
    done = Transition(
        item.deployment_id, item.node_id, item.incarnation, trigger, Actor.NODE, "done", now, item.generation,
        item.revision,
    )  # fmt: skip
    return replay(item, done)[0]


def settle(fleet: Fleet) -> Fleet:
    for _ in range(ROUNDS):
        fleet = obey(fleet, plan(fleet.view, fleet.now))
    return fleet


# --- what is asked of it --------------------------------------------------------------------------------------


@given(fleets())
def test_every_plan_passes_the_checker(fleet: Fleet) -> None:
    for _ in range(ROUNDS):
        checked = checked_plan(fleet.view, fleet.now)
        assert checked.set_aside == {}
        fleet = obey(fleet, checked.moves)


@given(fleets())
def test_obeyed_plans_come_to_rest(fleet: Fleet) -> None:
    settled = settle(fleet)
    assert plan(settled.view, settled.now) == ()


@given(fleets())
def test_what_runs_is_not_taken_away_before_something_else_runs(fleet: Fleet) -> None:
    for _ in range(ROUNDS):
        before = running(fleet.view)
        fleet = obey(fleet, plan(fleet.view, fleet.now))
        assert before & fleet.view.desired.keys() <= running(fleet.view)


def running(view: View) -> set[DeploymentId]:
    return {
        item.deployment_id
        for item in view.instances.values()
        if item.node_id in view.nodes
        and item.running_revision is not None
        and item.state is not State.DELETING
        and not (item.failure is not None and item.failure.code == Code.REMOVE_FAILED)
    }


def able(desired: Desired, view: View) -> set[str]:
    """Where it may be, by the rules a person would name."""
    return {
        node.id
        for node in view.nodes.values()
        if node.drain is None
        and (not desired.placement.nodes or node.id in desired.placement.nodes)
        and desired.placement.selector.unmet(node.info.labels) is None
        and desired.device_constraints is None
    }


@given(fleets())
def test_in_the_end_what_is_wanted_is_where_it_should_be_or_it_is_said_why_not(fleet: Fleet) -> None:
    free = replace(
        fleet.view,
        holds=(),
        nodes={key: replace(node, liveness=Liveness.LIVE) for key, node in fleet.view.nodes.items()},
    )
    view = settle(replace(fleet, view=free)).view
    assert all(key[0] in view.desired for key in view.instances), "what nobody wants is gone"
    for desired in view.desired.values():
        own = {key[1]: item for key, item in view.instances.items() if key[0] == desired.id}
        fine, at = able(desired, view), {node_id for node_id in own if node_id != UNPLACED}
        wanted = len(fine) if a_desired().placement.mode is desired.placement.mode else desired.placement.count
        well = {node_id for node_id in at & fine if is_well(own[node_id], desired)}
        assert len(at & fine) == min(wanted, len(fine))
        for node_id in (at & fine) - well:
            assert own[node_id].state is State.FAILED, "what is not well says why"
            assert own[node_id].failure is not None
        if len(fine) < max(1, wanted) and view.nodes:
            assert any(item.failure and item.failure.code == Code.NO_ELIGIBLE_NODE for item in own.values())
        if len(well) >= max(1, wanted):
            assert at <= fine, "what was moved from is gone"


def is_well(item: Instance, desired: Desired) -> bool:
    return item.state is State.INSTALLED and desired.revision in (item.revision, item.rejected_revision)


@given(fleets())
def test_a_plan_never_touches_what_is_right(fleet: Fleet) -> None:
    view = replace(fleet.view, secrets={})
    right = {
        key
        for key, item in view.instances.items()
        if (desired := view.desired.get(key[0])) is not None
        and is_well(item, desired)
        and item.revision == desired.revision
        and a_desired().placement.mode is desired.placement.mode
        and key[1] in able(desired, view)
    }
    assert not right & {(move.deployment_id, move.node_id) for move in plan(view, fleet.now)}


@given(fleets())
def test_a_silent_fleet_is_not_moved_about(fleet: Fleet) -> None:
    """With every node lost, nothing starts anywhere; removals are decided and wait."""
    lost = {key: replace(node, liveness=Liveness.LOST) for key, node in fleet.view.nodes.items()}
    starts = {Trigger.SCHEDULED, Trigger.RETRIED_INSTALL, Trigger.RETRIED_UPDATE}
    moves = plan(replace(fleet.view, nodes=lost), fleet.now)
    assert not [move for move in moves if move.trigger in starts]


@given(fleets())
def test_what_is_held_changes_only_by_work_under_way_and_repairs(fleet: Fleet) -> None:
    hold = Hold(HOME, None, "a shift", "anna", NOW, NOW + timedelta(days=900))
    held = replace(fleet.view, holds=(hold,))
    kept = {Trigger.SCHEDULED, Trigger.CHANGED, Trigger.UNPLACEABLE, Trigger.SUPERSEDED_UPDATE, Trigger.UNWANTED}
    assert not [
        move
        for move in plan(held, fleet.now)
        if move.trigger in kept and (move.node_id in held.nodes or move.node_id == UNPLACED)
    ]


@given(fleets())
def test_planning_one_deployment_gives_its_part_of_the_whole_plan(fleet: Fleet) -> None:
    """What several compete for is room alone, and these have enough."""
    whole = plan(fleet.view, fleet.now)
    each = {item.id for item in fleet.view.desired.values() if a_desired().placement.mode is item.placement.mode}
    for number in range(1, 5):
        key = deployment_id(number)
        if key in each or key not in fleet.view.desired:
            own = [move for move in whole if move.deployment_id == key]
            assert list(plan(fleet.view, fleet.now, only={key})) == own
