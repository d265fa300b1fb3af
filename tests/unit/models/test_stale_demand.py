"""A site whose central has said that it uses a pool, and then nothing more, gives the pool up all the same."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from homeport.adapters.system import SystemClock
from homeport.core.inference.engines.handoff import Loading
from homeport.core.inference.scaling import PoolUse
from homeport.errors import PeerUnavailable
from homeport.models.central.demand import FleetDemand
from homeport.models.site import scaling
from homeport.ports import InferencePorts
from homeport.vocabulary import SiteName
from tests.support.waiting import eventually
from tests.unit.models.test_retired import HOME, Demand, replica, site_in

pytestmark = pytest.mark.anyio


async def test_a_pool_is_unloaded_when_central_falls_silent_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "FRESH_SECONDS", 0.3)
    platform, tunnel = site_in(tmp_path)
    pools = scaling.SiteScaling(replace(platform, clock=SystemClock()))
    pools.settle([replica("a", loading=Loading.LOADED, loaded_min=0, idle_seconds=0.1)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pools.run)
        await pools.take_demand({"by": "central", "pools": {"a": {"waiting": 0, "busy": {"one": 1}}}})
        await anyio.wait_all_tasks_blocked()
        assert tunnel.asked == [], "central uses it"
        await eventually(lambda: tunnel.asked == [("a", False)], what="it to be unloaded")
        tasks.cancel_scope.cancel()


class Used(Demand):
    waiting = 1

    def use_of(self, pool_id: str) -> PoolUse:
        return PoolUse(waiting=self.waiting)


async def test_the_end_of_a_use_is_told_to_a_site_whose_answer_was_lost() -> None:
    said: list[dict[str, Any]] = []

    async def ask(site: SiteName, topic: str, content: Mapping[str, Any]) -> None:
        said.append(content["pools"])
        raise PeerUnavailable("the answer was lost")

    demand, one = Used(), replica("a")
    central = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: datetime(2030, 1, 1, tzinfo=UTC)),
        inference=InferencePorts(demand=demand),
        questions=SimpleNamespace(ask=ask),
    )
    fleet = FleetDemand(cast(Any, central), {HOME: {one.handoff.key: one}})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.run)
        await eventually(lambda: bool(said) and said[-1]["a"]["waiting"] == 1, what="the use to be told")
        demand.waiting = 0
        fleet.look()
        await eventually(lambda: said[-1]["a"]["waiting"] == 0, what="its end to be told")
        tasks.cancel_scope.cancel()
