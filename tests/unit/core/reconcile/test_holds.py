"""What waits while somebody holds a site or a deployment, and what goes on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.model.deployment import Desired, Hold
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.reconcile.holds import hold_on
from homeport.core.reconcile.plan import View, plan
from homeport.vocabulary import Code, DeploymentId, Liveness
from homeport.vocabulary import State as S
from homeport.vocabulary import Trigger as H
from tests.support.builders import HOME, NOW, a_desired, a_node, an_instance, deployment_id


def a_hold(on: DeploymentId | None = None, *, hours: float = 8) -> Hold:
    return Hold(HOME, on, "a shift is running", "anna", NOW, NOW + timedelta(hours=hours))


def view(desired: list[Desired], nodes: list[Node], instances: list[Instance], *holds: Hold) -> View:
    return View(
        desired={item.id: item for item in desired},
        unreadable=frozenset(),
        nodes={node.id: node for node in nodes},
        instances={item.key: item for item in instances},
        holds=holds,
    )


FAILED = an_instance(state=S.FAILED, failure=Failure(Code.NODE_OFFLINE, "x"))

WAITS = [
    ("a newer revision", [a_desired(at="second")], [an_instance()]),
    ("a newer revision of what failed", [a_desired(at="second")], [an_instance(state=S.FAILED)]),
    ("a newer one of what is under way", [a_desired(at="second")], [an_instance(state=S.INSTALLING, runs=False)]),
    ("a removal", [], [an_instance()]),
    ("a first install", [a_desired()], []),
    ("a verdict that nobody can take it", [a_desired(selector="zone=z")], []),
    ("leaving a node that no longer suits", [a_desired(selector="zone=z")], [an_instance()]),
]  # fmt: skip


@pytest.mark.parametrize(("desired", "instances"), [row[1:] for row in WAITS], ids=[row[0] for row in WAITS])
@pytest.mark.parametrize("on", [None, deployment_id(1)], ids=["site", "deployment"])
def test_it_waits_and_goes_on_when_the_hold_has_expired(
    desired: list[Desired], instances: list[Instance], on: DeploymentId | None
) -> None:
    held = view(desired, [a_node()], instances, a_hold(on))
    assert plan(held, NOW) == ()
    assert plan(held, NOW + timedelta(hours=8)) == plan(replace(held, holds=()), NOW + timedelta(hours=8))
    assert plan(replace(held, holds=()), NOW)


def test_what_is_tried_again_is_tried_again_all_the_same() -> None:
    assert [move.trigger for move in plan(view([a_desired()], [a_node()], [FAILED], a_hold()), NOW)] == [
        H.RETRIED_UPDATE
    ]


def test_work_on_a_lost_node_is_given_up_all_the_same() -> None:
    busy = an_instance(state=S.UPDATING)
    moves = plan(view([a_desired()], [a_node(liveness=Liveness.LOST)], [busy], a_hold()), NOW)
    assert [move.trigger for move in moves] == [H.GAVE_UP]


def test_a_node_that_was_removed_takes_its_instances_with_it_all_the_same() -> None:
    moves = plan(view([], [], [an_instance()], a_hold()), NOW)
    assert [move.trigger for move in moves] == [H.UNWANTED, H.REMOVED]


def test_a_hold_on_one_deployment_leaves_the_others_free() -> None:
    moves = plan(
        view([a_desired(1), a_desired(2)], [a_node()], [], a_hold(deployment_id(1))),
        NOW,
    )
    assert [move.deployment_id for move in moves] == [deployment_id(2)]


def test_of_several_holds_the_longest_is_the_one_to_wait_for() -> None:
    short, long = a_hold(deployment_id(1), hours=1), a_hold(hours=2)
    assert hold_on([short, long], deployment_id(1), NOW) == long
    assert hold_on([short], deployment_id(2), NOW) is None
    assert hold_on([short], deployment_id(1), NOW + timedelta(hours=1)) is None


BACK = a_desired(at="older")
GOING_BACK = [
    # what is there                                     who went back            what is done
    ("what runs", [an_instance()], True, [H.CHANGED]),
    ("what is under way", [an_instance(state=S.UPDATING)], True, [H.SUPERSEDED_UPDATE]),
    ("what has failed", [an_instance(state=S.FAILED, runs=False)], True, [H.SUPERSEDED_INSTALL]),
    ("a node that has nothing of it", [], True, []),
    ("what runs, and another word came from elsewhere", [an_instance()], False, []),
]  # fmt: skip


@pytest.mark.parametrize(("instances", "here", "done"), [row[1:] for row in GOING_BACK], ids=[
    row[0] for row in GOING_BACK
])  # fmt: skip
def test_who_goes_back_at_the_site_itself_does_not_wait(instances: list[Instance], here: bool, done: list[H]) -> None:
    held = view([BACK], [a_node()], instances, a_hold())
    by_hand = frozenset({(BACK.id, BACK.revision)} if here else ())
    assert [move.trigger for move in plan(replace(held, by_hand=by_hand), NOW)] == done


def test_going_back_with_one_leaves_the_others_held() -> None:
    held = view([BACK, a_desired(2, at="second")], [a_node()], [an_instance(), an_instance(2)], a_hold())
    moves = plan(replace(held, by_hand=frozenset({(BACK.id, BACK.revision)})), NOW)
    assert [move.deployment_id for move in moves] == [BACK.id]
