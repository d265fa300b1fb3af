"""Whatever a site finds, obeying its plans makes it right, and then there is nothing left to plan."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.lifecycle.replay import replay
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.reconcile.plan import REMOVAL_RETRY_SECONDS, Key, Move, View, plan
from homeport.vocabulary import UNPLACED, Actor, Code, Generation, Happening, Incarnation, Liveness, OrderKind, State
from tests.support.builders import NOW, a_desired, a_node, an_instance

LATER = NOW + timedelta(seconds=REMOVAL_RETRY_SECONDS)
NAMES = ("a", "b", "c")


@st.composite
def views(draw: st.DrawFn) -> View:
    desired = {
        item.id: item
        for item in (
            a_desired(
                number, at=draw(st.sampled_from(["first", "second"])), nodes=draw(st.sampled_from([(), ("a",)]))
            )
            for number in draw(st.sets(st.integers(1, 3)))
        )
    }
    nodes = {node.id: node for node in (a_node(name) for name in draw(st.sets(st.sampled_from(NAMES))))}
    instances = {}
    for number in range(1, 5):
        for name in draw(st.sets(st.sampled_from(NAMES))):
            state = draw(st.sampled_from([state for state in State if state is not State.DELETED]))
            failure = Failure(Code.REMOVE_FAILED, "busy") if state is State.FAILED and draw(st.booleans()) else None
            instance = an_instance(
                number, name, state=state, runs=state is State.INSTALLED or draw(st.booleans()), failure=failure
            )
            instances[instance.key] = instance
    return View(desired, frozenset(), nodes, instances)


def obey(view: View, moves: tuple[Move, ...]) -> View:
    """Every move is recorded, and every node does at once what it is told."""
    instances = dict(view.instances)
    for number, move in enumerate(moves):
        key = (move.deployment_id, move.node_id)
        _step(instances, key, move, Incarnation(100 + number))
        if move.order is OrderKind.APPLY:
            _finish(instances, key, Happening.HEALTHY)
        elif move.order is OrderKind.REMOVE:
            _finish(instances, key, Happening.REMOVED)
    return replace(view, instances={key: item for key, item in instances.items() if item.state is not State.DELETED})


def _step(instances: dict[Key, Instance], key: Key, move: Move, fresh: Incarnation) -> None:
    known = instances.get(key)
    transition = Transition(
        deployment_id=move.deployment_id,
        node_id=move.node_id,
        incarnation=fresh if move.begins or known is None else known.incarnation,
        happening=move.happening,
        actor=Actor.SITE,
        reason=move.why,
        at=NOW,
        generation=Generation(1000),
        revision=move.revision,
        failure=move.failure,
    )
    instances[key], _ = replay(known, transition)


def _finish(instances: dict[Key, Instance], key: Key, happening: Happening) -> None:
    known = instances[key]
    done = Transition(
        known.deployment_id, known.node_id, known.incarnation, happening, Actor.NODE, "done", NOW, known.generation,
        known.revision,
    )  # fmt: skip
    instances[key], _ = replay(known, done)


def deliver(view: View) -> View:
    """Nodes end the orders that they already had."""
    instances = dict(view.instances)
    for key, item in view.instances.items():
        if key[1] in view.nodes and item.state in (State.INSTALLING, State.UPDATING, State.ROLLINGBACK):
            _finish(instances, key, Happening.HEALTHY)
        elif key[1] in view.nodes and item.state is State.DELETING:
            _finish(instances, key, Happening.REMOVED)
    return replace(view, instances={key: item for key, item in instances.items() if item.state is not State.DELETED})


@given(views())
def test_obeying_plans_reaches_what_is_wanted_and_then_rests(view: View) -> None:
    # A waiting PENDING row is never left behind by a site, which records the first step together with the row.
    view = replace(
        view, instances={key: item for key, item in view.instances.items() if item.state is not State.PENDING}
    )
    for _ in range(4):
        view = deliver(obey(view, plan(view, LATER)))
    for desired in view.desired.values():
        for node_id in view.nodes:
            chosen = not desired.placement.nodes or node_id in desired.placement.nodes
            instance = view.instances.get((desired.id, node_id))
            assert (instance is not None) == chosen
            if instance is not None and instance.state is State.INSTALLED:
                assert instance.running_revision == desired.revision
            elif instance is not None:
                assert instance.state is State.FAILED, "what failed on its own revision rests"
    assert all(key[0] in view.desired for key in view.instances if key[1] in view.nodes)
    assert plan(view, LATER) == ()


@given(views())
def test_a_plan_never_touches_what_is_right(view: View) -> None:
    right = {
        key
        for key, item in view.instances.items()
        if item.state is State.INSTALLED
        and key[0] in view.desired
        and item.revision == view.desired[key[0]].revision
        and key[1] in view.nodes
        and (not view.desired[key[0]].placement.nodes or key[1] in view.desired[key[0]].placement.nodes)
    }
    assert not right & {(move.deployment_id, move.node_id) for move in plan(view, LATER)}


@given(views())
def test_a_silent_fleet_is_not_moved_about(view: View) -> None:
    """With every node lost, nothing starts anywhere; removals are decided and wait."""
    silent = replace(view, nodes={key: replace(node, liveness=Liveness.LOST) for key, node in view.nodes.items()})
    starts = {Happening.SCHEDULED, Happening.RETRIED_INSTALL, Happening.RETRIED_UPDATE}
    moves = plan(silent, LATER)
    assert not [move for move in moves if move.happening in starts]
    assert not [
        move
        for move in moves
        if move.node_id == UNPLACED
        and move.happening is Happening.UNPLACEABLE
        and view.nodes
        and not silent.desired[move.deployment_id].placement.nodes
    ]


@st.composite
def spread_views(draw: st.DrawFn) -> View:
    """`one` and `count`, with anything running anywhere and some nodes drained."""
    wanted = [a_desired(number, count=draw(st.integers(1, 3))) for number in draw(st.sets(st.integers(1, 3)))]
    names = sorted(draw(st.sets(st.sampled_from(NAMES))))
    nodes = [a_node(name, drain=draw(st.sampled_from([None, None, "new disk"]))) for name in names]
    instances = [
        an_instance(number, name, state=draw(st.sampled_from([State.INSTALLED, State.INSTALLING, State.DELETING])))
        for number in range(1, 5)
        for name in draw(st.sets(st.sampled_from(NAMES)))
    ]
    return View(
        {item.id: item for item in wanted},
        frozenset(),
        {node.id: node for node in nodes},
        {item.key: item for item in instances},
    )


@given(spread_views())
def test_as_many_as_are_wanted_run_in_the_end_and_nothing_is_left_on_a_drained_node(view: View) -> None:
    for _ in range(6):
        view = deliver(obey(view, plan(view, LATER)))
    open_nodes = [node.id for node in view.nodes.values() if node.drain is None]
    for desired in view.desired.values():
        placed = [item for key, item in view.instances.items() if key[0] == desired.id and key[1] != UNPLACED]
        assert len(placed) == min(desired.placement.count, len(open_nodes))
        assert all(item.state is State.INSTALLED and item.node_id in open_nodes for item in placed)
    assert plan(view, LATER) == ()


@given(spread_views())
def test_a_release_that_runs_is_not_taken_away_before_another_runs(view: View) -> None:
    """Where any node can take it at all."""
    if not [node for node in view.nodes.values() if node.drain is None]:
        return
    for _ in range(6):
        before = {
            key for key, item in view.instances.items() if item.state is State.INSTALLED and key[1] in view.nodes
        }
        view = deliver(obey(view, plan(view, LATER)))
        after = {key for key, item in view.instances.items() if item.state is State.INSTALLED}
        for desired in view.desired.values():
            if any(key[0] == desired.id for key in before):
                assert any(key[0] == desired.id for key in after)
