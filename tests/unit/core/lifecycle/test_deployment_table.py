"""Walks the lifecycle table: every (state, event) pair has exactly one of three verdicts."""

from itertools import product

import pytest

from homeport.core.lifecycle.deployment import DEPLOYMENT, IN_FLIGHT, SEVERITY, fold
from homeport.core.lifecycle.machine import Stale, Stepped
from homeport.errors import IllegalTransition
from homeport.vocabulary import UNPLACED, Actor, NodeId, State, Trigger

PAIRS = list(product(State, Trigger))
ROWS = {(row.while_in, row.on): row for row in DEPLOYMENT.rows}

# The seed's table, with the rows its prose asks for: from, to, actor.
PROMISED = [
    (State.PENDING, State.INSTALLING, Actor.SITE),
    (State.PENDING, State.FAILED, Actor.SITE),
    (State.INSTALLING, State.INSTALLED, Actor.NODE),
    (State.INSTALLING, State.FAILED, Actor.NODE),
    (State.INSTALLED, State.UPDATING, Actor.SITE),
    (State.UPDATING, State.INSTALLED, Actor.NODE),
    (State.UPDATING, State.FAILED, Actor.NODE),
    (State.FAILED, State.INSTALLING, Actor.SITE),
    (State.FAILED, State.UPDATING, Actor.SITE),
    (State.FAILED, State.ROLLINGBACK, Actor.SITE),
    (State.ROLLINGBACK, State.INSTALLED, Actor.NODE),
    (State.ROLLINGBACK, State.FAILED, Actor.NODE),
    *((state, State.DELETING, Actor.SITE) for state in State if state not in (State.DELETING, State.DELETED)),
    (State.DELETING, State.DELETED, Actor.NODE),
    (State.DELETING, State.FAILED, Actor.NODE),
]


@pytest.mark.parametrize(("state", "trigger"), PAIRS)
def test_every_pair_is_a_row_or_stale_or_illegal_and_nothing_else(state: State, trigger: Trigger) -> None:
    row = ROWS.get((state, trigger))
    for actor in Actor:
        if row is not None and actor in row.by:
            assert DEPLOYMENT.step(state, trigger, actor) == Stepped(row.becomes)
        elif (state, trigger) in DEPLOYMENT.stale:
            assert DEPLOYMENT.step(state, trigger, actor) == Stale(state)
        else:
            with pytest.raises(IllegalTransition):
                DEPLOYMENT.step(state, trigger, actor)


@pytest.mark.parametrize(("before", "after", "actor"), PROMISED)
def test_every_promised_edge_is_in_the_table(before: State, after: State, actor: Actor) -> None:
    assert any(row.while_in is before and row.becomes is after and actor in row.by for row in DEPLOYMENT.rows)


def test_no_edge_is_in_the_table_that_was_not_promised() -> None:
    superseded = {
        (before, after)
        for before in (State.INSTALLING, State.UPDATING, State.ROLLINGBACK, State.FAILED)
        for after in (State.INSTALLING, State.UPDATING)
    }
    promised = {(before, after) for before, after, _ in PROMISED} | superseded
    assert {(row.while_in, row.becomes) for row in DEPLOYMENT.rows} == promised


def test_every_state_can_be_reached_and_every_living_one_can_end() -> None:
    def reachable(start: State) -> set[State]:
        seen, todo = {start}, [start]
        while todo:
            state = todo.pop()
            for row in DEPLOYMENT.rows:
                if row.while_in is state and row.becomes not in seen:
                    seen.add(row.becomes)
                    todo.append(row.becomes)
        return seen

    assert reachable(DEPLOYMENT.start) == set(State)
    assert all(State.DELETED in reachable(state) for state in State)


def test_nothing_leaves_deleted() -> None:
    assert not [row for row in DEPLOYMENT.rows if row.while_in is State.DELETED]


def test_a_node_cannot_say_what_only_a_site_may() -> None:
    with pytest.raises(IllegalTransition, match="not for a node"):
        DEPLOYMENT.step(State.INSTALLED, Trigger.CHANGED, Actor.NODE)


def test_every_state_but_deleted_has_a_severity() -> None:
    assert set(SEVERITY) == set(State) - {State.DELETED}
    assert set(SEVERITY) >= IN_FLIGHT


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], State.PENDING),
        ([State.INSTALLED, State.INSTALLED], State.INSTALLED),
        ([State.INSTALLED, State.UPDATING], State.UPDATING),
        ([State.INSTALLED, State.FAILED, State.DELETING], State.FAILED),
        ([State.DELETED, State.INSTALLED], State.INSTALLED),
        ([State.DELETED, State.DELETING], State.DELETING),
        ([State.DELETED, State.DELETED], State.PENDING),
        ([State.PENDING, State.INSTALLING], State.INSTALLING),
    ],
)
def test_a_deployment_is_as_its_worst_instance(states: list[State], expected: State) -> None:
    assert fold((NodeId(f"node-{number}"), state) for number, state in enumerate(states)) is expected


def test_what_could_not_be_placed_counts_only_while_nothing_is_placed() -> None:
    assert fold([(UNPLACED, State.FAILED)]) is State.FAILED
    assert fold([(UNPLACED, State.FAILED), (NodeId("a"), State.INSTALLED)]) is State.INSTALLED
    assert fold([(UNPLACED, State.FAILED), (NodeId("a"), State.DELETED)]) is State.FAILED


def test_a_deployment_without_instances_is_deleted_once_its_file_is_gone() -> None:
    assert fold([], wanted=False) is State.DELETED
    assert fold([(NodeId("a"), State.DELETED)], wanted=False) is State.DELETED


@pytest.mark.parametrize("trigger", [each for each in Trigger if each is not Trigger.RESTATED])
def test_what_a_trigger_leads_to_depends_on_no_state(trigger: Trigger) -> None:
    assert {row.becomes for row in DEPLOYMENT.rows if row.on is trigger} == {DEPLOYMENT.after(trigger)}
