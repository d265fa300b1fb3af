"""Marks are taken together, a long plan is made aside, and nothing that was overtaken is carried out."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from homeport.core.reconcile.check import Checked
from homeport.errors import TransientError
from homeport.fleet.site.planner import OVERTAKEN_MAX, SitePlanner
from homeport.fleet.site.state import SiteState
from homeport.vocabulary import DeploymentId, Generation, Incarnation
from tests.support.builders import HOME, a_desired, a_node, deployment_id
from tests.support.clock import ManualClock

pytestmark = pytest.mark.anyio

ONE, TWO = deployment_id(1), deployment_id(2)


def site() -> SiteState:
    """Two deployments that are wanted on its one node."""
    state = SiteState(HOME, Generation(1), Incarnation(1))
    state.files = {item.id: item for item in (a_desired(1), a_desired(2))}
    state.wanted = set(state.files)
    state.nodes = {a_node().id: a_node()}
    return state


@dataclass
class Carried:
    """What was carried out, plan by plan."""

    plans: list[list[DeploymentId]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    async def out(self, make: Callable[[], Checked], looked_at: Collection[DeploymentId] | None) -> None:
        if self.failures:
            raise self.failures.pop()
        self.plans.append([move.deployment_id for move in make().moves])


async def test_marks_of_many_are_one_plan() -> None:
    reserved = Carried()
    planner = SitePlanner(site(), ManualClock(), reserved.out)
    for _ in range(5):
        planner.mark([ONE])
    planner.mark([TWO])
    await planner.plan()
    assert reserved.plans == [[ONE, TWO]]


async def test_only_what_is_marked_is_planned() -> None:
    reserved = Carried()
    planner = SitePlanner(site(), ManualClock(), reserved.out)
    planner.mark([TWO])
    await planner.plan()
    assert reserved.plans == [[TWO]]
    await planner.plan()
    assert reserved.plans == [[TWO]], "without marks there is nothing to do"


async def test_what_is_marked_while_a_long_plan_is_made_is_dropped_from_it_and_planned_again() -> None:
    reserved, interruptions = Carried(), [ONE]

    async def slowly(work: Callable[..., Any], *arguments: Any) -> Any:
        made = work(*arguments)
        if interruptions:
            planner.mark([interruptions.pop()])
        return made

    planner = SitePlanner(site(), ManualClock(), reserved.out, in_thread=slowly)
    planner.inline_max = 0
    planner.mark_all()
    await planner.plan()
    assert reserved.plans == [[TWO], [ONE]]


async def test_a_plan_that_is_always_overtaken_is_made_at_last_while_everybody_waits() -> None:
    reserved, made_aside = Carried(), 0

    async def overtaken(work: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal made_aside
        made_aside += 1
        planner.mark([ONE])
        return work(*arguments)

    planner = SitePlanner(site(), ManualClock(), reserved.out, in_thread=overtaken)
    planner.inline_max = 0
    planner.mark([ONE])
    await planner.plan()
    assert made_aside == OVERTAKEN_MAX
    assert reserved.plans == [[]] * OVERTAKEN_MAX + [[ONE]]


async def test_a_plan_that_could_not_be_made_durable_is_made_again() -> None:
    reserved = Carried(failures=[TransientError("the disk is busy")])
    planner = SitePlanner(site(), ManualClock(), reserved.out)
    planner.mark([ONE])
    with pytest.raises(TransientError):
        await planner.plan()
    assert reserved.plans == []
    await planner.plan()
    assert reserved.plans == [[ONE]]


async def test_a_copy_does_not_follow_the_site() -> None:
    reserved, state = Carried(), site()

    async def meanwhile(work: Callable[..., Any], *arguments: Any) -> Any:
        state.nodes.clear()
        return work(*arguments)

    planner = SitePlanner(state, ManualClock(), reserved.out, in_thread=meanwhile)
    planner.inline_max = 0
    planner.mark([ONE])
    await planner.plan()
    assert reserved.plans == [[ONE]]
