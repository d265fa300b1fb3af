"""Each thing that no plan may do, and that one bad deployment harms itself alone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from homeport.core.model.deployment import Desired, Hold
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.node import Node
from homeport.core.reconcile import plan as planning
from homeport.core.reconcile.check import check, checked_plan, older_orders
from homeport.core.reconcile.demand import place_deployment as place
from homeport.core.reconcile.holds import without_held
from homeport.core.reconcile.plan import Move, View, plan
from homeport.errors import InvariantViolated
from homeport.vocabulary import UNPLACED, Actor, DeploymentId, Generation, Incarnation, NodeId, OrderKind, State
from homeport.vocabulary import Trigger as H
from tests.support.builders import HOME, NOW, a_desired, a_node, an_instance, deployment_id, revision

ONE = NodeId("one")
APPLY, REMOVE = OrderKind.APPLY, OrderKind.REMOVE
HOLD = Hold(HOME, None, "a shift is running", "anna", NOW, NOW + timedelta(hours=1))


def a_view(*instances: Instance, desired: Desired | None = None, nodes: Sequence[Node] = (), **rest: Any) -> View:
    wanted = a_desired() if desired is None else desired
    known = nodes or (a_node("one"), a_node("two"))
    return View(
        {wanted.id: wanted},
        rest.pop("unreadable", frozenset()),
        {node.id: node for node in known},
        {item.key: item for item in instances},
        **rest,
    )


def a_move(trigger: H, order: OrderKind | None = None, *, node: str = "one", at: str = "first", **rest: Any) -> Move:
    return Move(deployment_id(1), NodeId(node), trigger, rest.pop("why", "so"), revision(at), order, **rest)


SCHEDULED = a_move(H.SCHEDULED, APPLY, begins=True)
FAULTS = [
    ("an unknown node", a_view(), [a_move(H.SCHEDULED, APPLY, node="ghost", begins=True)],
     "an order for ghost, which is not a node of the site"),
    ("no node", a_view(an_instance(node=UNPLACED)), [a_move(H.UNWANTED, REMOVE, node=UNPLACED)],
     "an order for no node, which is not a node of the site"),
    ("two releases", a_view(an_instance()), [a_move(H.CHANGED, APPLY), a_move(H.SUPERSEDED_UPDATE, APPLY)],
     "two orders for one"),
    ("an unknown release", a_view(an_instance()), [a_move(H.CHANGED, APPLY, at="ghost")],
     f"an order for revision {revision('ghost')}, which is not known here"),
    ("no reason", a_view(), [replace(SCHEDULED, why="")],
     "no reason is given for scheduled on one"),
    ("a second life", a_view(an_instance()), [SCHEDULED], "one has an instance already, which is INSTALLED"),
    ("an illegal step", a_view(an_instance()), [a_move(H.RETRIED_INSTALL, APPLY)],
     "retried-install means nothing while INSTALLED"),
    ("a step without effect", a_view(an_instance(state=State.DELETING)), [a_move(H.UNWANTED, REMOVE)],
     "unwanted while DELETING changes nothing"),
    ("a drained node", a_view(nodes=[a_node(drain="new disk")]), [SCHEDULED],
     "one is drained and would get something new"),
    ("twins", a_view(desired=a_desired(count=1)), [SCHEDULED, replace(SCHEDULED, node_id=NodeId("two"))],
     "2 instances would be started, and 1 are wanted"),
    ("nothing in its place", a_view(an_instance()), [a_move(H.UNWANTED, REMOVE)],
     "what runs on one would be removed, and nothing healthy has taken its place"),
    ("a successor that is not healthy yet", a_view(an_instance(), an_instance(node="two", state=State.INSTALLING)),
     [a_move(H.UNWANTED, REMOVE)], "what runs on one would be removed, and nothing healthy has taken its place"),
    ("a hold", a_view(holds=(HOLD,)), [SCHEDULED], "scheduled on one while it is held by anna"),
    ("an unreadable file", a_view(unreadable=frozenset({deployment_id(1)})), [SCHEDULED],
     "its file cannot be read, so it stays as it is"),
    ("somebody else's move", a_view(), [SCHEDULED, replace(SCHEDULED, deployment_id=deployment_id(2))],
     "moves of several deployments are mixed"),
]  # fmt: skip


@pytest.mark.parametrize(("view", "moves", "fault"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_a_plan_that_does_what_none_may_do_is_refused(view: View, moves: list[Move], fault: str) -> None:
    with pytest.raises(InvariantViolated) as refused:
        check(view, list(view.instances.values()), moves, NOW)
    assert fault in str(refused.value)


@pytest.mark.parametrize(
    ("view", "moves"),
    [
        (a_view(an_instance(), an_instance(node="two")), [a_move(H.UNWANTED, REMOVE)]),
        (View({}, frozenset(), {ONE: a_node()}, {}), [a_move(H.UNWANTED, REMOVE)]),
        (a_view(an_instance(runs=False, state=State.INSTALLING)), [a_move(H.UNWANTED, REMOVE)]),
    ],
    ids=["a healthy successor", "its file is gone", "nothing ever ran"],
)
def test_a_removal_with_a_reason_passes(view: View, moves: list[Move]) -> None:
    known = list(view.instances.values()) or [an_instance()]
    check(view, known, moves, NOW)


def a_step(number: int, generation: int) -> tuple[Move, Transition]:
    move = replace(a_move(H.CHANGED, APPLY), deployment_id=deployment_id(number))
    return move, Transition(
        move.deployment_id, ONE, Incarnation(3), H.CHANGED, Actor.SITE, "so", NOW, Generation(generation),
        move.revision,
    )  # fmt: skip


@pytest.mark.parametrize(("generation", "is_newer"), [(6, False), (7, False), (8, True)])
def test_an_order_must_be_newer_than_what_its_instance_has(generation: int, is_newer: bool) -> None:
    instance = an_instance(generation=7)
    refused = older_orders([a_step(1, generation)], {instance.key: instance})
    assert (refused == {}) is is_newer
    assert is_newer or "is not newer than 7" in refused[deployment_id(1)]


def test_a_number_that_does_not_grow_harms_its_own_deployment_alone() -> None:
    huge, other = an_instance(generation=2**62), an_instance(2, generation=7)
    refused = older_orders([a_step(1, 8), a_step(2, 9)], {huge.key: huge, other.key: other})
    assert refused.keys() == {deployment_id(1)}
    assert older_orders([a_step(1, 9), a_step(2, 9)], {}).keys() == {deployment_id(2)}, "two orders of one number"


def two(view: View) -> View:
    other = a_desired(2)
    return replace(view, desired={**view.desired, other.id: other})


def test_a_deployment_whose_plan_raises_is_set_aside_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_the_first(desired: Desired, *rest: Any) -> Any:
        if desired.id == deployment_id(1):
            raise RecursionError("too deep")
        return place(desired, *rest)

    monkeypatch.setattr(planning, "place_deployment", fails_for_the_first)
    checked = checked_plan(two(a_view(nodes=[a_node()])), NOW)
    assert [move.deployment_id for move in checked.moves] == [deployment_id(2)]
    assert checked.set_aside == {deployment_id(1): "RecursionError('too deep')"}


def test_a_plan_that_is_refused_is_set_aside_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice_for_the_first(moves: Sequence[Move], *rest: Any, **more: Any) -> tuple[Move, ...]:
        found = without_held(moves, *rest, **more)
        return found * 2 if found and found[0].deployment_id == deployment_id(1) else found

    monkeypatch.setattr(planning, "without_held", twice_for_the_first)
    checked = checked_plan(two(a_view(nodes=[a_node()])), NOW)
    assert [move.deployment_id for move in checked.moves] == [deployment_id(2)]
    assert "two orders for one" in checked.set_aside[deployment_id(1)]


def test_only_what_is_asked_for_is_planned() -> None:
    view = two(a_view(nodes=[a_node()]))
    only: list[DeploymentId] = [deployment_id(2)]
    assert [move.deployment_id for move in checked_plan(view, NOW, only).moves] == only
    assert plan(view, NOW, only) == checked_plan(view, NOW, only).moves
