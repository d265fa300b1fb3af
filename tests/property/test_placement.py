"""Whatever nodes come, go, fall silent or are drained: placement never overfills a node, moves nothing without need,
and says why for everybody."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import LOST_GRACE_SECONDS, Placed
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.demand import place_deployment as place
from homeport.core.reconcile.demand import reserved, resources_of
from homeport.vocabulary import Liveness, NodeId
from tests.support.builders import NOW, a_desired, a_node, an_instance

GIB = 2**30
NAMES = tuple("abcdef")


@st.composite
def sites(draw: st.DrawFn) -> list[Node]:
    return [
        a_node(
            name,
            liveness=draw(st.sampled_from([Liveness.LIVE, Liveness.LIVE, Liveness.LOST])),
            labels={"zone": draw(st.sampled_from(["x", "y"]))},
            drain=draw(st.sampled_from([None, None, None, "new disk"])),
            memory_bytes=draw(st.integers(1, 6)) * GIB,
            seen=NOW - timedelta(seconds=draw(st.sampled_from([60.0, LOST_GRACE_SECONDS]))),
        )
        for name in sorted(draw(st.sets(st.sampled_from(NAMES), min_size=1)))
    ]


wishes = st.builds(
    lambda number, count, selector, memory: a_desired(number, count=count, selector=selector, memory=f"{memory}Gi"),
    number=st.integers(1, 8),
    count=st.integers(1, 4),
    selector=st.sampled_from(["", "zone=x"]),
    memory=st.integers(1, 3),
)


def running(placed: Placed, desired: Desired) -> dict[NodeId, Instance]:
    return {node_id: replace(an_instance(1, node_id), deployment_id=desired.id) for node_id in placed.chosen}


@given(sites(), st.lists(wishes, max_size=8, unique_by=lambda item: item.id))
def test_no_node_is_given_more_than_it_has(nodes: list[Node], wanted: list[Desired]) -> None:
    roster = Roster(nodes)
    taken: Counter[NodeId] = Counter()
    for desired in wanted:
        for node_id in place(desired, roster, {}, NOW).chosen:
            roster.take(node_id, resources_of(desired))
            taken[node_id] += int(resources_of(desired).memory_bytes)
    assert all(taken[node.id] <= node.info.capabilities.memory_bytes for node in nodes)


@given(sites(), wishes)
def test_everybody_is_chosen_or_told_why_not(nodes: list[Node], desired: Desired) -> None:
    placed = place(desired, nodes, {}, NOW)
    assert {*placed.chosen, *placed.refused} == {node.id for node in nodes}
    assert not set(placed.chosen) & set(placed.refused)
    assert len(placed.chosen) <= desired.placement.count


@given(sites(), wishes)
def test_what_was_placed_stays_when_asked_again(nodes: list[Node], desired: Desired) -> None:
    first = place(desired, nodes, {}, NOW)
    held = running(first, desired)
    roster = Roster(nodes).reserve(reserved(held.values(), {desired.id: desired}))
    again = place(desired, roster, held, NOW)
    assert set(first.chosen) <= set(again.chosen)


@given(sites(), wishes, st.data())
def test_a_drain_moves_only_what_stands_on_the_drained_node(
    nodes: list[Node], desired: Desired, data: st.DataObject
) -> None:
    held = running(place(desired, nodes, {}, NOW), desired)
    emptied = data.draw(st.sampled_from([node.id for node in nodes]))
    after = [replace(node, drain="new disk") if node.id == emptied else node for node in nodes]
    roster = Roster(after).reserve(reserved(held.values(), {desired.id: desired}))
    placed = place(desired, roster, held, NOW)
    assert emptied not in placed.chosen
    assert held.keys() - {emptied} <= set(placed.chosen)
    lacking = desired.placement.count - len(held.keys() - {emptied})
    assert len(set(placed.chosen) - held.keys()) <= lacking


@given(sites(), wishes)
def test_names_and_order_of_the_nodes_do_not_matter_to_the_choice(nodes: list[Node], desired: Desired) -> None:
    assert place(desired, nodes, {}, NOW) == place(desired, nodes[::-1], {}, NOW)
