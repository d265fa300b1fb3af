"""What runs is taken away only when its successor is healthy, and stays where no node can take its place."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.model.deployment import Desired, Hold
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.reconcile.plan import Move, View, plan
from homeport.vocabulary import UNPLACED, Code, Incarnation, Liveness, OrderKind, ProfileType, State
from homeport.vocabulary import Trigger as H
from tests.support.builders import HOME, NOW, a_desired, a_node, an_instance

BEFORE = a_desired(at="first")


def view(desired: Desired, nodes: list[Node], instances: list[Instance], holds: tuple[Hold, ...] = ()) -> View:
    past = {(BEFORE.id, BEFORE.revision): BEFORE}
    return View(
        {desired.id: desired},
        frozenset(),
        {node.id: node for node in nodes},
        {item.key: item for item in instances},
        past=past,
        holds=holds,
    )


def told(moves: tuple[Move, ...]) -> list[tuple[str, H, OrderKind | None]]:
    return [(move.node_id, move.trigger, move.order) for move in moves]


REFUSED = [("one", H.CHANGED, None), ("one", H.GAVE_UP, None)]
IMPOSSIBLE = [
    pytest.param(a_desired(at="second", memory="900Gi"), "one needs 900Gi of memory, has 4Gi", id="more memory"),
    pytest.param(a_desired(at="second", selector="zone=b"), "one does not meet the selector zone=b", id="selector"),
    pytest.param(a_desired(at="second", nodes=("nothere",)), 'the site has no node called "nothere"', id="host"),
    pytest.param(a_desired(at="second", kind=ProfileType.HELM), "one cannot run helm apps", id="profile"),
    pytest.param(a_desired(at="second", memory="900Gi", count=1), "one needs 900Gi of memory", id="one, more memory"),
    pytest.param(a_desired(at="second", selector="zone=b", count=1), "the selector zone=b", id="one, selector"),
    pytest.param(a_desired(at="second", nodes=("nothere",), count=2), '"nothere"', id="two, host"),
]


@pytest.mark.parametrize(("desired", "because"), IMPOSSIBLE)
def test_an_update_that_no_node_can_take_leaves_the_release_that_runs_and_says_so(
    desired: Desired, because: str
) -> None:
    moves = plan(view(desired, [a_node()], [an_instance()]), NOW)
    assert [step for step in told(moves) if step[0] != UNPLACED] == REFUSED
    failure = moves[1].failure
    assert failure is not None
    assert failure.code == Code.NO_ELIGIBLE_NODE
    assert because in failure.message
    assert failure.message.endswith("1.0.0 keeps running on one")


def after_refusal(node: str = "one") -> Instance:
    """Its update has no node: it runs the first revision and waits for the second."""
    failed = an_instance(node=node, state=State.FAILED, at="second", failure=Failure(Code.NO_ELIGIBLE_NODE, "no"))
    return replace(failed, running_revision=BEFORE.revision)


@pytest.mark.parametrize(("desired", "because"), IMPOSSIBLE[:6])
def test_it_is_said_once(desired: Desired, because: str) -> None:
    assert plan(view(desired, [a_node()], [after_refusal()]), NOW) == (), because


def test_it_is_tried_when_its_node_can_take_it() -> None:
    moves = plan(
        view(a_desired(at="second", selector="zone=b"), [a_node(labels={"zone": "b"})], [after_refusal()]), NOW
    )
    assert told(moves) == [("one", H.RETRIED_UPDATE, OrderKind.APPLY)]
    assert moves[0].why == "one can take it now"


def test_when_another_node_can_take_it_the_old_one_goes_after_that_is_healthy() -> None:
    desired = a_desired(at="second", selector="zone=b")
    nodes = [a_node("one"), a_node("two", labels={"zone": "b"})]
    assert told(plan(view(desired, nodes, [after_refusal()]), NOW)) == [("two", H.SCHEDULED, OrderKind.APPLY)]
    starting = an_instance(node="two", state=State.INSTALLING, at="second", runs=False)
    assert plan(view(desired, nodes, [after_refusal(), starting]), NOW) == ()
    healthy = an_instance(node="two", at="second")
    assert told(plan(view(desired, nodes, [after_refusal(), healthy]), NOW)) == [
        ("one", H.UNWANTED, OrderKind.REMOVE)
    ]


def test_an_update_that_left_an_old_component_behind_is_a_release_that_runs() -> None:
    """Its code is that of a failed removal; nothing of what runs was removed."""
    behind = Failure(Code.REMOVE_FAILED, "cache is busy")
    stuck = replace(an_instance(state=State.FAILED, at="second", failure=behind), running_revision=BEFORE.revision)
    desired, nodes = a_desired(at="second", selector="zone=b"), [a_node("one"), a_node("two", labels={"zone": "b"})]
    starting, later = (
        an_instance(node="two", state=State.INSTALLING, at="second", runs=False),
        NOW + timedelta(hours=1),
    )
    assert H.UNWANTED not in {move.trigger for move in plan(view(desired, nodes, [stuck, starting]), later)}
    healthy = an_instance(node="two", at="second")
    assert ("one", H.UNWANTED, OrderKind.REMOVE) in told(plan(view(desired, nodes, [stuck, healthy]), later))


def test_a_profile_that_another_node_runs_replaces_the_old_one_after_it_is_healthy() -> None:
    desired = a_desired(at="second", kind=ProfileType.HELM, count=1)
    chart_node = a_node("two")
    able = replace(chart_node.info.capabilities, profile_types=(ProfileType.HELM,))
    nodes = [a_node("one"), replace(chart_node, info=replace(chart_node.info, capabilities=able))]
    assert told(plan(view(desired, nodes, [an_instance()]), NOW)) == [("two", H.SCHEDULED, OrderKind.APPLY)]
    starting = an_instance(node="two", state=State.INSTALLING, at="second", runs=False)
    assert plan(view(desired, nodes, [an_instance(), starting]), NOW) == ()
    failed = an_instance(
        node="two", state=State.FAILED, at="second", runs=False, failure=Failure(Code.IMAGE_PULL_FAILED, "no")
    )
    assert "one" not in {move.node_id for move in plan(view(desired, nodes, [an_instance(), failed]), NOW)}
    healthy = an_instance(node="two", at="second")
    moves = plan(view(desired, nodes, [an_instance(), healthy]), NOW)
    assert told(moves) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_a_file_that_is_put_back_makes_it_whole_again() -> None:
    moves = plan(view(BEFORE, [a_node()], [after_refusal()]), NOW)
    assert told(moves) == [("one", H.SUPERSEDED_UPDATE, OrderKind.APPLY)]


@pytest.mark.parametrize("count", [None, 1, 2])
def test_a_drain_that_no_other_node_can_follow_leaves_what_runs_and_says_so(count: int | None) -> None:
    moves = plan(view(a_desired(count=count), [a_node(drain="new disk")], [an_instance()]), NOW)
    assert told(moves) == [(UNPLACED, H.UNPLACEABLE, None)]
    assert "one is drained: new disk" in moves[0].why


def test_a_drained_node_gives_up_what_the_others_have_on_each() -> None:
    nodes = [a_node("one", drain="new disk"), a_node("two")]
    both = [an_instance(node="one"), an_instance(node="two")]
    assert told(plan(view(a_desired(), nodes, both), NOW)) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_a_drained_node_waits_for_the_update_of_the_others() -> None:
    nodes = [a_node("one", drain="new disk"), a_node("two")]
    both = [an_instance(node="one"), an_instance(node="two")]
    assert told(plan(view(a_desired(at="second"), nodes, both), NOW)) == [("two", H.CHANGED, OrderKind.APPLY)]


def test_one_that_failed_for_good_does_not_keep_another_node_from_being_drained() -> None:
    nodes = [a_node("one", drain="new disk"), a_node("two"), a_node("three")]
    failed = an_instance(node="three", state=State.FAILED, runs=False, failure=Failure(Code.EXITED, "no"))
    three = [an_instance(node="one"), an_instance(node="two"), failed]
    assert told(plan(view(a_desired(), nodes, three), NOW)) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_the_last_healthy_one_stays_on_its_drained_node() -> None:
    nodes = [a_node("one", drain="new disk"), a_node("two")]
    failed = an_instance(node="two", state=State.FAILED, runs=False, failure=Failure(Code.EXITED, "no"))
    assert plan(view(a_desired(), nodes, [an_instance(node="one"), failed]), NOW) == ()


def test_with_fewer_places_than_wanted_what_runs_is_kept_beside_those_that_could_be_placed() -> None:
    desired = a_desired(at="second", count=2, memory="6Gi")
    nodes = [a_node("one"), a_node("two", memory_bytes=8 * 2**30)]
    moves = plan(view(desired, nodes, [an_instance(node="one"), an_instance(node="two")]), NOW)
    assert told(moves) == [*REFUSED, ("two", H.CHANGED, OrderKind.APPLY)]
    assert moves[1].why.startswith("no further node can take 1.0.0: one needs 6Gi of memory, has 4Gi")
    updated = an_instance(node="two", at="second")
    assert plan(view(desired, nodes, [after_refusal("one"), updated]), NOW) == ()


def after_breaking(node: str) -> Instance:
    """Its update replaced what ran and was not healthy; nothing is restored."""
    failed = an_instance(node=node, state=State.FAILED, at="second", failure=Failure(Code.EXITED, "it ended"))
    return replace(failed, running_revision=BEFORE.revision)


@pytest.mark.parametrize("well", [an_instance(node="two"), after_refusal("two")], ids=["healthy", "untouched"])
@pytest.mark.parametrize("third", [[], [a_node("three")]], ids=["no other node", "a successor"])
def test_of_several_of_which_one_may_stay_it_is_not_the_broken_one(well: Instance, third: list[Node]) -> None:
    nodes = [a_node("one", drain="new disk"), a_node("two", drain="new disk"), *third]
    moves = plan(view(a_desired(at="third", count=1), nodes, [after_breaking("one"), well]), NOW)
    removed = [move.node_id for move in moves if move.order is OrderKind.REMOVE]
    assert removed == ["one"]


BOTH = [a_node("one"), a_node("two")]


@pytest.mark.parametrize("state", [State.UPDATING, State.FAILED, State.ROLLINGBACK])
def test_where_fewer_are_wanted_the_update_of_one_leaves_the_others_alone(state: State) -> None:
    """Until it is healthy: else a bad update would reach all of them, and none would be left."""
    desired, second = a_desired(at="second", count=1), an_instance(node="two", incarnation=4)
    assert told(plan(view(desired, BOTH, [an_instance(), second]), NOW)) == [("two", H.CHANGED, OrderKind.APPLY)]
    busy = replace(second, state=state, revision=desired.revision)
    if state is State.FAILED:
        busy = replace(busy, failure=Failure(Code.EXITED, "it ended"), next_at=NOW + timedelta(seconds=5))
    assert plan(view(desired, BOTH, [an_instance(), busy]), NOW) == ()


@pytest.mark.parametrize("code", [Code.EXITED, Code.IMAGE_PULL_FAILED, Code.SECRET_MISSING])
def test_of_two_that_failed_for_good_where_one_is_wanted_one_leaves(code: Code) -> None:
    failed = replace(after_breaking("one"), failure=Failure(code, "no"))
    later = replace(after_breaking("two"), failure=Failure(code, "no"), incarnation=Incarnation(4))
    moves = plan(view(a_desired(at="second", count=1), BOTH, [failed, later]), NOW)
    assert told(moves) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_of_two_that_failed_for_good_the_broken_one_leaves() -> None:
    untouched = replace(after_breaking("one"), failure=Failure(Code.IMAGE_PULL_FAILED, "no"))
    later = replace(after_breaking("two"), incarnation=Incarnation(4))
    moves = plan(view(a_desired(at="second", count=1), BOTH, [untouched, later]), NOW)
    assert told(moves) == [("two", H.UNWANTED, OrderKind.REMOVE)]
    lost = [BOTH[1], a_node("one", liveness=Liveness.LOST)]
    assert plan(view(a_desired(at="second", count=1), lost, [untouched, later]), NOW) == ()


def test_with_the_only_other_node_lost_it_waits_for_that_where_it_runs() -> None:
    nodes = [a_node("one", drain="new disk"), a_node("two", liveness=Liveness.LOST)]
    assert plan(view(a_desired(count=1), nodes, [an_instance(node="one")]), NOW) == ()


def test_an_update_under_way_is_ended_before_the_next_is_refused() -> None:
    desired = a_desired(at="third", memory="900Gi")
    second = a_desired(at="second")
    busy = replace(an_instance(state=State.UPDATING, at="second"), running_revision=BEFORE.revision)
    known = view(desired, [a_node()], [busy])
    known = replace(known, past={**known.past, (second.id, second.revision): second})
    assert plan(known, NOW) == ()
    failed = replace(busy, state=State.FAILED, failure=Failure(Code.EXITED, "no"), next_at=NOW)
    assert told(plan(replace(known, instances={failed.key: failed}), NOW)) == [
        ("one", H.ROLLED_BACK, OrderKind.APPLY)
    ], "the release before it comes back first, for it may not run"
    settled = replace(failed, next_at=None)
    assert [step[1] for step in told(plan(replace(known, instances={failed.key: settled}), NOW))] == [
        H.SUPERSEDED_UPDATE,
        H.GAVE_UP,
    ]


def test_a_hold_keeps_even_the_refusal_waiting() -> None:
    hold = Hold(HOME, None, "a shift is running", "anna", NOW, NOW + timedelta(hours=1))
    known = view(a_desired(at="second", memory="900Gi"), [a_node()], [an_instance()], (hold,))
    assert plan(known, NOW) == ()


def test_what_never_ran_has_nothing_to_wait_for() -> None:
    busy = an_instance(state=State.INSTALLING, runs=False)
    moves = plan(view(a_desired(at="second", memory="900Gi"), [a_node()], [busy]), NOW)
    assert told(moves)[0] == ("one", H.UNWANTED, OrderKind.REMOVE)


def test_a_removed_file_still_removes() -> None:
    gone = View({}, frozenset(), {a_node().id: a_node()}, {after_refusal().key: after_refusal()})
    assert told(plan(gone, NOW)) == [("one", H.UNWANTED, OrderKind.REMOVE)]
