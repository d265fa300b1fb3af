"""What a node holds and nobody wants there goes away, and what may still be placed there does not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.model.deployment import Hold
from homeport.core.model.instance import Unhealthy
from homeport.core.model.node import Node
from homeport.core.model.order import Held
from homeport.core.reconcile.plan import REMOVAL_RETRY_SECONDS
from homeport.fleet.site.nodes import orphans
from homeport.fleet.site.state import SiteState
from homeport.ports import Owned
from homeport.vocabulary import Commit, Generation, Incarnation, Liveness, NodeId, OrderKind, State
from tests.support.builders import HOME, NOW, a_node, an_instance, deployment_id

ONE = NodeId("one")
HELD = Held(deployment_id(), Generation(3), OrderKind.APPLY, None, done=True)
LATER = REMOVAL_RETRY_SECONDS


def a_memory(*, wanted: bool, node: Node | None = None) -> SiteState:
    memory = SiteState(HOME, Generation(7), Incarnation(1), applied=Commit("c" * 40))
    memory.wanted = {deployment_id()} if wanted else set()
    memory.nodes = {ONE: node or a_node("one")}
    return memory


def test_what_the_site_does_not_want_is_ordered_away_at_once() -> None:
    (order,) = orphans.removals(ONE, [HELD], a_memory(wanted=False), 0.0)
    assert (order.kind, order.generation) == (OrderKind.REMOVE, 8)


def test_what_a_node_brings_back_and_was_placed_elsewhere_goes_after_a_while() -> None:
    memory = a_memory(wanted=True)
    assert orphans.removals(ONE, [HELD], memory, 0.0) == [], "the plan may still place it here"
    assert orphans.due(memory, LATER - 1, NOW) == []
    ((node_id, order),) = orphans.due(memory, LATER, NOW)
    assert (node_id, order.deployment_id, order.kind) == (ONE, deployment_id(), OrderKind.REMOVE)
    assert orphans.due(memory, 2 * LATER, NOW) == [], "it is ordered once"


def test_what_is_placed_on_the_node_again_stays() -> None:
    memory = a_memory(wanted=True)
    orphans.removals(ONE, [HELD], memory, 0.0)
    memory.instances[deployment_id(), ONE] = an_instance(node="one")
    assert orphans.due(memory, LATER, NOW) == []


@pytest.mark.parametrize("node", [a_node("one", liveness=Liveness.LOST), a_node("one")])
def test_nothing_goes_before_the_plan_could_place_it(node: Node) -> None:
    """A node that cannot be heard, or a hold, keeps the plan from saying anything."""
    memory = a_memory(wanted=True, node=node)
    if node.liveness is Liveness.LIVE:
        memory.holds = (Hold(HOME, None, "not now", "ann", NOW, NOW + timedelta(hours=1)),)
    orphans.removals(ONE, [HELD], memory, 0.0)
    assert orphans.due(memory, LATER, NOW) == []
    memory.nodes, memory.holds = {ONE: a_node("one")}, ()
    assert len(orphans.due(memory, LATER, NOW)) == 1


def test_a_file_that_cannot_be_read_keeps_what_it_asked_for() -> None:
    memory = a_memory(wanted=True)
    memory.unreadable = frozenset({deployment_id()})
    assert orphans.removals(ONE, [HELD], memory, 0.0) == []
    assert orphans.due(memory, LATER, NOW) == []
    memory.unreadable, memory.wanted = frozenset(), set()
    assert len(orphans.due(memory, LATER, NOW)) == 1, "it was removed from Git before anybody could read it again"


LEFT = Owned(ONE, deployment_id(), "web")
"""What is on the engine of a node that has lost its folder, and that a site with a lost database knows nothing of."""


def orphaned(memory: SiteState) -> tuple[Owned, ...]:
    return orphans.orphaned_workloads(ONE, [LEFT], memory, known={deployment_id()}, now=NOW)


def test_what_nobody_remembers_goes_when_it_runs_well_elsewhere() -> None:
    memory = a_memory(wanted=True)
    memory.nodes[NodeId("two")] = a_node("two")
    assert orphaned(memory) == (), "nothing has taken its place"
    memory.instances[deployment_id(), NodeId("two")] = an_instance(node="two", state=State.INSTALLING)
    assert orphaned(memory) == (), "its successor is not healthy"
    memory.instances[deployment_id(), NodeId("two")] = an_instance(node="two")
    assert orphaned(memory) == (LEFT,)
    memory.instances[deployment_id(), ONE] = an_instance(node="one", state=State.INSTALLING)
    assert orphaned(memory) == (), "it is placed here too"


@pytest.mark.parametrize("liveness", [Liveness.STALE, Liveness.LOST, None])
def test_what_a_silent_or_removed_node_had_installed_takes_nobodys_place(liveness: Liveness | None) -> None:
    memory = a_memory(wanted=True)
    if liveness is not None:
        memory.nodes[NodeId("two")] = a_node("two", liveness=liveness)
    memory.instances[deployment_id(), NodeId("two")] = an_instance(node="two")
    assert orphaned(memory) == ()
    memory.nodes[NodeId("two")] = a_node("two")
    assert orphaned(memory) == (LEFT,)


def test_what_is_unhealthy_elsewhere_takes_nobodys_place() -> None:
    memory = a_memory(wanted=True)
    memory.nodes[NodeId("two")] = a_node("two")
    sick = replace(an_instance(node="two"), unhealthy=Unhealthy(NOW, "it does not answer"))
    memory.instances[deployment_id(), NodeId("two")] = sick
    assert orphaned(memory) == ()


def test_what_nobody_remembers_stays_while_the_plan_cannot_place_it() -> None:
    memory = a_memory(wanted=True)
    memory.instances[deployment_id(), NodeId("two")] = an_instance(node="two")
    memory.holds = (Hold(HOME, None, "not now", "ann", NOW, NOW + timedelta(hours=1)),)
    assert orphaned(memory) == ()
    memory.holds = ()
    memory.unreadable = frozenset({deployment_id()})
    assert orphaned(memory) == ()
