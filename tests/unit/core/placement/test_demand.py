"""What any workload can ask of a site's nodes, without a deployment in sight."""

from dataclasses import replace

from homeport.core.model.demand import Commitment, Demand, Resources
from homeport.core.model.node import Gpu, Node
from homeport.core.placement.choose import place
from homeport.core.placement.roster import Roster
from homeport.vocabulary import NodeId, PlacementMode
from tests.support.builders import a_node

GIB = 2**30


def with_gpus(node: Node, count: int) -> Node:
    able = replace(node.info.capabilities, gpus=tuple(Gpu(f"card {i}", "acme", 8 * GIB) for i in range(count)))
    return replace(node, info=replace(node.info, capabilities=able))


def test_gpus_are_counted_and_a_node_that_has_too_few_says_so() -> None:
    roster = Roster([with_gpus(a_node("a"), 2), a_node("b"), with_gpus(a_node("c"), 1)])
    demand = Demand(resources=Resources(gpus=2))
    first = place(demand, roster)
    assert first.chosen == ("a",)
    assert first.refused == {"b": "b needs 2 GPUs, has none.", "c": "c needs 2 GPUs, has 1."}
    roster.take(first.chosen[0], demand.resources)
    assert place(demand, roster).refused[NodeId("a")] == "a has no room: 2 of its GPUs are asked for, 0 are free."


def test_a_port_of_the_machine_is_given_once() -> None:
    demand = Demand(resources=Resources(ports=frozenset({8000, 8001})))
    roster = Roster([a_node("a"), a_node("b")]).reserve([(NodeId("a"), Resources(ports=frozenset({8001})))])
    placed = place(demand, roster)
    assert placed.chosen == ("b",)
    assert placed.refused[NodeId("a")] == "a has no room: port 8001 is taken."


def test_cores_and_memory_are_asked_of_the_machine_itself() -> None:
    small = a_node("small", memory_bytes=GIB)
    placed = place(Demand(resources=Resources(memory_bytes=2 * GIB, cpu_cores=1)), [small])
    assert placed.explain() == "small needs 2Gi of memory, has 1Gi"
    cores = small.info.capabilities.cpu_cores
    assert place(Demand(resources=Resources(cpu_cores=cores)), [small]).chosen == ("small",)
    assert "cores, has" in place(Demand(resources=Resources(cpu_cores=cores + 1)), [small]).explain()


def test_a_requirement_of_its_own_refuses_with_its_own_words() -> None:
    demand = Demand(requirements=(lambda able, labels: None if "cache" in labels else "has no cache",))
    placed = place(demand, [a_node("a"), a_node("b", labels={"cache": "yes"})])
    assert placed.chosen == ("b",)
    assert placed.refused[NodeId("a")] == "a has no cache."


def test_what_needs_no_engine_runs_on_a_node_without_one() -> None:
    node = a_node("bare", types=())
    able = replace(node.info.capabilities, engine="")
    bare = replace(node, info=replace(node.info, capabilities=able))
    assert place(Demand(), [bare]).chosen == ("bare",)


def test_who_asks_may_prefer_other_nodes_than_the_emptiest() -> None:
    roster = Roster([a_node("a"), a_node("b")]).reserve([(NodeId("b"), Resources())])
    assert place(Demand(), roster).chosen == ("a",)
    assert place(Demand(), roster, prefer=lambda slot: -slot.instances).chosen == ("b",)


def test_what_a_node_has_of_it_stays_there() -> None:
    demand = Demand(mode=PlacementMode.COUNT, count=2)
    placed = place(demand, [a_node(name) for name in "abc"], {NodeId("c"): Commitment(since=1, runs=True)})
    assert placed.chosen == ("a", "c")
