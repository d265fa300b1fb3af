"""Each rule of the plan, one test each."""

from dataclasses import replace
from datetime import timedelta

from homeport.core.lifecycle.replay import replay
from homeport.core.model.demand import Resources
from homeport.core.model.deployment import Desired, Policy
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.node import Node
from homeport.core.model.order import Result
from homeport.core.reconcile.orders import OrderContext, outcome
from homeport.core.reconcile.plan import REMOVAL_RETRY_SECONDS, Move, View, plan
from homeport.vocabulary import UNPLACED, Actor, Code, Generation, Liveness, NodeId, OrderKind, ProfileType, State
from homeport.vocabulary import Trigger as H
from tests.support.builders import NOW, a_desired, a_node, an_instance, deployment_id


def view(
    desired: list[Desired], nodes: list[Node], instances: list[Instance], *, unreadable: tuple[int, ...] = ()
) -> View:
    return View(
        desired={item.id: item for item in desired},
        unreadable=frozenset(deployment_id(number) for number in unreadable),
        nodes={node.id: node for node in nodes},
        instances={item.key: item for item in instances},
    )


def told(moves: tuple[Move, ...]) -> list[tuple[str, H, OrderKind | None]]:
    return [(move.node_id, move.trigger, move.order) for move in moves]


def test_a_wanted_deployment_is_scheduled_on_every_node() -> None:
    moves = plan(view([a_desired()], [a_node("a"), a_node("b")], []), NOW)
    assert told(moves) == [("a", H.SCHEDULED, OrderKind.APPLY), ("b", H.SCHEDULED, OrderKind.APPLY)]
    assert all(move.begins for move in moves)


def test_only_the_nodes_that_were_asked_for_get_it() -> None:
    moves = plan(view([a_desired(nodes=("b",))], [a_node("a"), a_node("b")], []), NOW)
    assert told(moves) == [("b", H.SCHEDULED, OrderKind.APPLY)]


def test_a_site_already_right_has_no_moves() -> None:
    assert plan(view([a_desired()], [a_node()], [an_instance()]), NOW) == ()


def test_an_hour_of_looking_changes_nothing() -> None:
    instances = [an_instance(number, node) for number in (1, 2) for node in ("a", "b")]
    site = view([a_desired(), a_desired(2)], [a_node("a"), a_node("b")], instances)
    for second in range(0, 3600, 5):
        now = NOW + timedelta(seconds=second)
        heard = {id_: replace(node, last_seen=now) for id_, node in site.nodes.items()}
        assert plan(replace(site, nodes=heard), now) == (), second
    assert plan(replace(site, desired={}), NOW + timedelta(hours=1)) != (), "and it would have said so"


def test_a_new_revision_updates_what_is_installed() -> None:
    moves = plan(view([a_desired(at="second")], [a_node()], [an_instance()]), NOW)
    assert told(moves) == [("one", H.CHANGED, OrderKind.APPLY)]
    assert "revision" in moves[0].why


def test_a_new_revision_supersedes_an_install_under_way() -> None:
    busy = an_instance(state=State.INSTALLING, runs=False)
    assert told(plan(view([a_desired(at="second")], [a_node()], [busy]), NOW)) == [
        ("one", H.SUPERSEDED_INSTALL, OrderKind.APPLY)
    ]


def test_a_new_revision_after_a_failed_update_is_an_update_for_a_release_runs() -> None:
    failed = an_instance(state=State.FAILED, runs=True, failure=Failure(Code.IMAGE_PULL_FAILED, "no"))
    assert told(plan(view([a_desired(at="second")], [a_node()], [failed]), NOW)) == [
        ("one", H.SUPERSEDED_UPDATE, OrderKind.APPLY)
    ]


def test_a_failed_instance_rests_until_something_changes() -> None:
    failed = an_instance(state=State.FAILED, failure=Failure(Code.IMAGE_PULL_FAILED, "no"))
    assert plan(view([a_desired()], [a_node()], [failed]), NOW) == ()


def test_work_on_a_lost_node_is_given_up_and_tried_again_when_it_is_back() -> None:
    busy = an_instance(state=State.UPDATING)
    (move,) = plan(view([a_desired()], [a_node(liveness=Liveness.LOST)], [busy]), NOW)
    assert (move.trigger, move.order) == (H.GAVE_UP, None)
    assert move.failure is not None
    assert move.failure.code == Code.NODE_OFFLINE
    failed = an_instance(state=State.FAILED, failure=move.failure)
    assert plan(view([a_desired()], [a_node(liveness=Liveness.LOST)], [failed]), NOW) == ()
    assert told(plan(view([a_desired()], [a_node()], [failed]), NOW)) == [("one", H.RETRIED_UPDATE, OrderKind.APPLY)]


def test_what_is_installed_on_a_lost_node_stays_installed() -> None:
    assert plan(view([a_desired()], [a_node(liveness=Liveness.LOST)], [an_instance()]), NOW) == ()


def test_a_lost_node_gets_nothing_new() -> None:
    assert plan(view([a_desired()], [a_node(liveness=Liveness.LOST)], []), NOW) == ()


def test_a_removed_file_removes_the_workload() -> None:
    moves = plan(view([], [a_node()], [an_instance()]), NOW)
    assert told(moves) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_an_unreadable_file_keeps_its_deployment_as_it_is() -> None:
    assert plan(view([], [a_node()], [an_instance()], unreadable=(1,)), NOW) == ()
    assert plan(view([a_desired(at="second")], [a_node()], [an_instance()], unreadable=(1,)), NOW) == ()


def test_a_removal_on_a_lost_node_waits_for_it() -> None:
    leaving = an_instance(state=State.DELETING)
    assert plan(view([], [a_node(liveness=Liveness.LOST)], [leaving]), NOW) == ()


def test_a_removal_whose_node_was_removed_is_over() -> None:
    moves = plan(view([], [], [an_instance()]), NOW)
    assert [move.trigger for move in moves] == [H.UNWANTED, H.REMOVED]


def test_a_failed_removal_is_tried_again_after_a_rest() -> None:
    stuck = an_instance(state=State.FAILED, failure=Failure(Code.REMOVE_FAILED, "busy"))
    assert plan(view([], [a_node()], [stuck]), NOW) == ()
    later = NOW + timedelta(seconds=REMOVAL_RETRY_SECONDS)
    assert told(plan(view([], [a_node()], [stuck]), later)) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_a_deployment_that_every_node_refuses_fails_with_each_reason() -> None:
    helm = a_desired(kind=ProfileType.HELM)
    (move,) = plan(view([helm], [a_node("a")], []), NOW)
    assert (move.node_id, move.trigger) == (UNPLACED, H.UNPLACEABLE)
    assert move.failure is not None
    assert move.failure.code == Code.NO_ELIGIBLE_NODE
    assert "a cannot run helm apps" in move.failure.message


def test_without_any_node_a_deployment_waits() -> None:
    assert plan(view([a_desired()], [], []), NOW) == ()


def test_the_refusal_is_taken_back_when_a_node_can_take_it() -> None:
    refused = an_instance(node=UNPLACED, state=State.FAILED, runs=False)
    moves = plan(view([a_desired()], [a_node("a")], [refused]), NOW)
    assert [(move.node_id, move.trigger) for move in moves] == [
        ("a", H.SCHEDULED),
        (UNPLACED, H.UNWANTED),
        (UNPLACED, H.REMOVED),
    ]


def test_an_instance_leaves_a_node_that_is_no_longer_asked_for_when_its_successor_is_healthy() -> None:
    nodes, here = [a_node("a"), a_node("b")], an_instance(node="a")
    moves = plan(view([a_desired(nodes=("b",))], nodes, [here]), NOW)
    assert told(moves) == [("b", H.SCHEDULED, OrderKind.APPLY)]
    moves = plan(view([a_desired(nodes=("b",))], nodes, [here, an_instance(node="b")]), NOW)
    assert told(moves) == [("a", H.UNWANTED, OrderKind.REMOVE)]


def test_removals_come_first_so_that_ports_are_free() -> None:
    moves = plan(view([a_desired(1)], [a_node()], [an_instance(9)]), NOW)
    assert [move.trigger for move in moves] == [H.UNWANTED, H.SCHEDULED]


def test_every_move_says_why() -> None:
    moves = plan(view([a_desired(1), a_desired(2, at="x")], [a_node()], [an_instance(2), an_instance(9)]), NOW)
    assert len(moves) == 3
    assert all(move.why for move in moves)


def without_engine(name: str = "one") -> Node:
    node = a_node(name, types=())
    return replace(node, info=replace(node.info, capabilities=replace(node.info.capabilities, engine="")))


def test_a_node_that_started_before_its_engine_loses_nothing() -> None:
    assert plan(view([a_desired()], [without_engine()], [an_instance()]), NOW) == ()


def test_a_new_revision_waits_for_the_engine_of_its_node() -> None:
    assert plan(view([a_desired(at="second")], [without_engine()], [an_instance()]), NOW) == ()
    assert told(plan(view([a_desired(at="second")], [a_node()], [an_instance()]), NOW)) == [
        ("one", H.CHANGED, OrderKind.APPLY)
    ]


def test_a_removal_that_found_no_engine_rests_like_any_failed_removal() -> None:
    leaving = an_instance(state=State.DELETING)
    failure = Failure(Code.ENGINE_UNREACHABLE, "no engine")
    result = Result(leaving.deployment_id, leaving.generation, OrderKind.REMOVE, False, NOW, failure)
    (transition,) = outcome(result, leaving, OrderContext(NOW))
    failed, _ = replay(leaving, transition)
    assert failed.failure == replace(failure, code=Code.REMOVE_FAILED)
    assert plan(view([], [a_node()], [failed]), NOW) == ()
    later = NOW + timedelta(seconds=REMOVAL_RETRY_SECONDS)
    assert told(plan(view([], [a_node()], [failed]), later)) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_a_failed_removal_does_not_rest_for_a_day_because_a_clock_was_set_back() -> None:
    failed = an_instance(state=State.FAILED, failure=Failure(Code.REMOVE_FAILED, "busy"))
    earlier = NOW - timedelta(days=1)
    assert told(plan(view([], [a_node()], [failed]), earlier)) == [("one", H.UNWANTED, OrderKind.REMOVE)]


def test_what_could_not_be_removed_and_is_in_the_way_or_wanted_again_is_tried_again() -> None:
    failed = an_instance(state=State.FAILED, failure=Failure(Code.REMOVE_FAILED, "busy"))
    assert plan(view([a_desired()], [a_node()], [failed]), NOW) == ()
    later = NOW + timedelta(seconds=REMOVAL_RETRY_SECONDS)
    assert told(plan(view([a_desired()], [a_node()], [failed]), later)) == [
        ("one", H.RETRIED_UPDATE, OrderKind.APPLY)
    ]
    assert plan(view([a_desired()], [a_node(liveness=Liveness.LOST)], [failed]), later) == ()
    often = replace(failed, attempt=99)
    assert plan(view([a_desired()], [a_node()], [often]), later) == ()


def test_a_removal_that_failed_is_no_attempt_at_what_is_wanted_again() -> None:
    """Also where a file asks for one attempt: that of the release is still to come."""
    desired = replace(a_desired(), policy=Policy(retries_max=0))
    (move,) = plan(view([], [a_node()], [an_instance()]), NOW)
    leaving, _ = replay(an_instance(), a_transition(move))
    result = Result(leaving.deployment_id, leaving.generation, OrderKind.REMOVE, False, NOW, Failure("X", "busy"))
    failed, _ = replay(leaving, *outcome(result, leaving, OrderContext(NOW)))
    later = NOW + timedelta(seconds=REMOVAL_RETRY_SECONDS)
    (again,) = plan(view([desired], [a_node()], [failed]), later)
    assert (again.trigger, again.order) == (H.RETRIED_INSTALL, OrderKind.APPLY)
    tried, _ = replay(failed, a_transition(again))
    assert tried.attempt == 1
    left_behind = replace(tried, state=State.FAILED, failure=Failure(Code.REMOVE_FAILED, "busy"))
    assert plan(view([desired], [a_node()], [left_behind]), later + timedelta(hours=1)) == ()


def a_transition(move: Move) -> Transition:
    before = an_instance()
    return Transition(
        deployment_id=move.deployment_id,
        node_id=move.node_id,
        incarnation=before.incarnation,
        trigger=move.trigger,
        actor=Actor.SITE,
        reason=move.why,
        at=NOW,
        generation=Generation(before.generation + 1),
        revision=move.revision,
    )


def test_an_operator_who_asks_again_is_named_as_the_reason() -> None:
    failed = an_instance(state=State.FAILED, runs=False, failure=Failure("IMAGE_PULL_FAILED", "no such image"))
    again = replace(a_desired(at="again"), retry="1234 by ann")
    (move,) = plan(view([again], [a_node()], [failed]), NOW)
    assert (move.trigger, move.order) == (H.SUPERSEDED_INSTALL, OrderKind.APPLY)
    assert move.why == "operator asked again (1234 by ann)"


def test_a_deployment_is_placed_around_what_jobs_have_reserved() -> None:
    """And stays where it is when a job comes later."""
    nodes = {NodeId(name): a_node(name) for name in ("a", "b")}
    wanted = a_desired(1, count=1, memory="3Gi")
    busy = ((NodeId("a"), Resources(memory_bytes=2 * 2**30)),)
    (move,) = plan(View({wanted.id: wanted}, frozenset(), nodes, {}, others=busy), NOW)
    assert (move.trigger, move.node_id) == (H.SCHEDULED, "b")
    full = (*busy, (NodeId("b"), Resources(memory_bytes=2 * 2**30)))
    (refused, *_) = plan(View({wanted.id: wanted}, frozenset(), nodes, {}, others=full), NOW)
    assert refused.trigger is H.UNPLACEABLE
    there = replace(an_instance(1, "a"), revision=wanted.revision, running_revision=wanted.revision)
    assert plan(View({wanted.id: wanted}, frozenset(), nodes, {there.key: there}, others=full), NOW) == ()
