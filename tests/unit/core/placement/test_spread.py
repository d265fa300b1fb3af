"""`one` and `count`: who is chosen, who keeps what, when something moves, and what is said of the others."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import LOST_GRACE_SECONDS, Placed
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.demand import place_deployment as place
from homeport.core.reconcile.demand import reserved
from homeport.vocabulary import Code, Liveness, NodeId, State
from tests.support.builders import NOW, a_desired, a_node, an_instance

LONG_AGO = NOW - timedelta(seconds=LOST_GRACE_SECONDS)


def held(*instances: Instance) -> dict[NodeId, Instance]:
    return {item.node_id: item for item in instances}


def lost(name: str, *, long: bool = False) -> Node:
    return a_node(name, liveness=Liveness.LOST, seen=LONG_AGO if long else NOW - timedelta(seconds=60))


def test_one_takes_the_node_with_the_fewest_instances() -> None:
    carries = [an_instance(7, "a"), an_instance(8, "a"), an_instance(7, "b"), an_instance(9, "c")]
    roster = Roster([a_node("a"), a_node("b"), a_node("c")]).reserve(reserved(carries, {}))
    placed = place(a_desired(count=1), roster)
    assert placed.chosen == ("b",)
    assert placed.refused == {
        "a": "a is not needed: one instance is wanted, on b.",
        "c": "c is not needed: one instance is wanted, on b.",
    }


def test_equal_nodes_are_taken_in_the_order_of_their_names() -> None:
    nodes = [a_node(name) for name in "dbca"]
    assert place(a_desired(count=3), nodes).chosen == ("a", "b", "c")


def test_what_runs_stays_although_another_node_has_less_to_do() -> None:
    roster = Roster([a_node("a"), a_node("b")]).reserve(reserved([an_instance(1, "b"), an_instance(7, "b")], {}))
    assert place(a_desired(count=1), roster, held(an_instance(1, "b"))).chosen == ("b",)


def test_only_nodes_that_meet_the_selector_are_chosen_and_the_first_unmet_part_is_named() -> None:
    nodes = [a_node("a", labels={"zone": "a"}), a_node("b", labels={"zone": "b"}), a_node("c")]
    placed = place(a_desired(count=1, selector="zone=b,gpu"), nodes)
    assert placed.chosen == ()
    assert placed.missing == 1
    assert placed.refused == {
        "a": "a does not meet the selector zone=b.",
        "b": "b does not meet the selector gpu.",
        "c": "c does not meet the selector zone=b.",
    }
    assert place(a_desired(selector="zone=b"), nodes).chosen == ("b",)


def test_room_is_added_up_and_a_full_node_says_what_is_left() -> None:
    wanted = a_desired(1, count=1, memory="3Gi")
    other = a_desired(2, memory="2Gi")
    roster = Roster([a_node("a"), a_node("b")]).reserve(
        reserved([an_instance(2, "a"), an_instance(2, "b")], {other.id: other})
    )
    placed = place(wanted, roster)
    assert placed.chosen == ()
    assert placed.explain() == "a, b: has no room: 3Gi of memory are asked for, 2Gi are left"
    bigger = Roster([a_node("a"), a_node("b", memory_bytes=8 * 2**30)])
    bigger.reserve(reserved([an_instance(2, "a"), an_instance(2, "b")], {other.id: other}))
    assert place(wanted, bigger).chosen == ("b",)


def test_what_is_held_needs_no_room_of_its_own_again() -> None:
    wanted = a_desired(1, count=1, memory="3Gi")
    roster = Roster([a_node("a")]).reserve(reserved([an_instance(1, "a")], {wanted.id: wanted}))
    assert place(wanted, roster, held(an_instance(1, "a"))).chosen == ("a",)


def test_each_asks_the_machine_and_not_what_is_left_of_it() -> None:
    other = a_desired(2, memory="4Gi")
    roster = Roster([a_node("a")]).reserve(reserved([an_instance(2, "a")], {other.id: other}))
    assert place(a_desired(1, memory="4Gi"), roster).chosen == ("a",)


def test_too_few_nodes_are_all_taken_and_the_rest_is_missing() -> None:
    placed = place(a_desired(count=3), [a_node("a"), a_node("b", types=())])
    assert (placed.chosen, placed.missing) == (("a",), 2)


def test_a_silent_node_keeps_what_it_holds_until_the_grace_ends() -> None:
    nodes = [lost("a"), a_node("b")]
    placed = place(a_desired(count=1), nodes, held(an_instance(1, "a")), NOW)
    assert placed.chosen == ("a",)
    assert placed.missing == 0


def test_after_the_grace_another_node_takes_it_and_the_lost_one_is_left_alone() -> None:
    nodes = [lost("a", long=True), a_node("b")]
    placed = place(a_desired(count=1), nodes, held(an_instance(1, "a")), NOW)
    assert (placed.chosen, placed.silent, placed.lingering) == (("b",), ("a",), ())


def test_with_nobody_else_a_lost_node_keeps_it_for_ever() -> None:
    placed = place(a_desired(count=1), [lost("a", long=True)], held(an_instance(1, "a")), NOW)
    assert (placed.chosen, placed.silent, placed.missing) == ((), ("a",), 0)


def test_a_node_that_is_back_gives_up_what_was_moved_away() -> None:
    both = held(an_instance(1, "a", incarnation=3), an_instance(1, "b", incarnation=9))
    placed = place(a_desired(count=1), [a_node("a"), a_node("b")], both, NOW)
    assert (placed.chosen, placed.lingering) == (("b",), ())
    assert placed.refused["a"] == "a is not needed: one instance is wanted, on b."  # type: ignore[index]


def test_a_drained_node_gives_up_what_it_holds_only_when_the_other_is_healthy() -> None:
    nodes = [a_node("a", drain="new disk"), a_node("b")]
    first = place(a_desired(count=1), nodes, held(an_instance(1, "a")), NOW)
    assert (first.chosen, first.lingering) == (("b",), ("a",))
    starting = an_instance(1, "b", state=State.INSTALLING, runs=False)
    assert place(a_desired(count=1), nodes, held(an_instance(1, "a"), starting), NOW).lingering == ("a",)
    done = place(a_desired(count=1), nodes, held(an_instance(1, "a"), an_instance(1, "b")), NOW)
    assert (done.chosen, done.lingering) == (("b",), ())
    assert done.refused == {"a": "a is drained: new disk."}


def test_what_runs_nowhere_has_nothing_to_wait_for() -> None:
    nodes = [a_node("a", drain="new disk"), a_node("b")]
    broken = an_instance(1, "a", state=State.FAILED, runs=False, failure=Failure(Code.IMAGE_PULL_FAILED, "no"))
    placed = place(a_desired(count=1), nodes, held(broken), NOW)
    assert (placed.chosen, placed.lingering) == (("b",), ())


def test_a_drain_that_nobody_can_follow_leaves_it_where_it_runs() -> None:
    placed = place(a_desired(count=1), [a_node("a", drain="new disk")], held(an_instance(1, "a")), NOW)
    assert (placed.chosen, placed.lingering, placed.stranded, placed.missing) == ((), (), ("a",), 1)
    assert placed.explain() == "a is drained: new disk"


def test_a_drain_called_off_in_the_middle_keeps_what_runs() -> None:
    starting = an_instance(1, "b", state=State.INSTALLING, runs=False, incarnation=9)
    placed = place(a_desired(count=1), [a_node("a"), a_node("b")], held(an_instance(1, "a"), starting), NOW)
    assert (placed.chosen, placed.lingering) == (("a",), ())


def test_a_node_that_still_takes_it_away_is_the_last_to_get_it_back() -> None:
    leaving = held(an_instance(1, "a", state=State.DELETING))
    assert place(a_desired(count=1), [a_node("a"), a_node("b")], leaving, NOW).chosen == ("b",)
    assert place(a_desired(count=1), [a_node("a")], leaving, NOW).chosen == ("a",)


def test_equal_nodes_share_one_reason_however_many_they_are() -> None:
    nodes = [a_node(f"n{number:03}", types=()) for number in range(200)]
    placed = place(a_desired(count=1), nodes)
    assert len(placed.refusals) == 1
    assert str(placed.refusals[0]).startswith("n000, n001, n002 and 197 more: cannot run compose apps")
    assert len(placed.refused) == 200


@pytest.mark.parametrize("key", ["/id", ""])
def test_a_rule_about_the_id_tells_equal_nodes_apart(key: str) -> None:
    expression = {"key": key, "operator": "In", "values": ["home/b"]}
    rules = [{"propertySelector": {"matchExpressions": [expression]}}]
    desired = replace(a_desired(), device_constraints={"eligibilityRules": rules})
    placed: Placed = place(desired, [a_node("a"), a_node("b")])
    assert placed.chosen == (("b",) if key else ())
