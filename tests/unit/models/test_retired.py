"""What a site and central make of a retired model, without containers."""

import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, Loading
from homeport.core.inference.models.lifecycle import CatalogModel, ModelLifecycle
from homeport.core.inference.replicas import Reached
from homeport.core.inference.scaling import PoolUse
from homeport.core.tunnel.counts import TunnelCounts
from homeport.core.tunnel.targets import Endpoint
from homeport.fleet.site.platform import SitePlatform
from homeport.models.central.demand import FleetDemand
from homeport.models.site.scaling import SiteScaling
from homeport.ports import InferencePorts
from homeport.vocabulary import NodeId, SiteName
from tests.support.clock import ManualClock
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
HOME, NODE = SiteName("home"), NodeId("one")


def replica(pool_id: str, **changes: Any) -> Reached:
    """Unloaded, with an idle time and a minimum of one: a site loads it as soon as it sees it."""
    handoff = Handoff(
        **{
            "engine": EngineName.LLAMACPP,
            "url": "http://127.0.0.1:8100",
            "model": HandoffModel(f"model-of-{pool_id}"),
            "pool_id": pool_id,
            "replica_id": "one",
            "provisioning_mode": "package",
            "loading": Loading.UNLOADED,
            "idle_seconds": 60,
            "loaded_min": 1,
            **changes,
        }
    )
    return Reached(NODE, handoff, Endpoint("127.0.0.1", 8100), is_direct=True)


class NodeTunnel:
    """The tunnel of a node that notes what it is asked to load or unload, and says that it has done so."""

    streams = 0

    def __init__(self) -> None:
        self.counts = TunnelCounts()
        self.asked: list[tuple[str, bool]] = []

    @asynccontextmanager
    async def open(self, header: Any) -> AsyncIterator[Any]:
        self.asked.append((header["pool"], header["loaded"]))

        async def nothing() -> bytes:
            return b""

        yield SimpleNamespace(end=nothing, read=nothing)

    def leave(self, reason: str) -> None: ...

    def close(self, reason: str) -> None: ...


async def inline(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


def site_in(data: Path) -> tuple[SitePlatform, NodeTunnel]:
    platform = SitePlatform(
        site=HOME,
        clock=ManualClock(),
        ids=cast(Any, None),
        store=cast(Any, None),
        central=None,
        nodes=dict,
        send=lambda node_id, order: None,
        in_thread=inline,
        data=data,
    )
    tunnel = NodeTunnel()
    platform.node_tunnels.attach(NODE, cast(Any, tunnel))
    return platform, tunnel


async def test_a_site_that_was_restarted_without_central_loads_no_retired_model(tmp_path: Path) -> None:
    """The pool after it in the same round is loaded, so that it was looked at."""
    replicas = [replica("a"), replica("b")]
    before = SiteScaling(site_in(tmp_path)[0])
    before.settle(replicas)
    await before.take_demand({"by": "central", "pools": {"a": {"waiting": 0, "busy": {}, "retired": True}}})
    # A central that has not read its catalog yet says nothing about it.
    await before.take_demand({"by": "central", "pools": {"a": {"waiting": 3, "busy": {}}}})

    platform, tunnel = site_in(tmp_path)
    after = SiteScaling(platform)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after.run)
        after.settle(replicas)
        await eventually(lambda: bool(tunnel.asked), what="the other pool to be loaded")
        assert tunnel.asked == [("b", True)]
        found = after.find("model-of-a")
        assert found is not None
        assert found.lifecycle is ModelLifecycle.RETIRED
        assert after.find("model-of-b") is None
        await after.take_demand({"by": "central", "pools": {"a": {"waiting": 0, "busy": {}, "retired": False}}})
        await eventually(lambda: ("a", True) in tunnel.asked, what="the model that is active again to be loaded")
        tasks.cancel_scope.cancel()
    third = SiteScaling(site_in(tmp_path)[0])
    assert third.find("model-of-a") is None, "that was kept, too"


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"retired": {}}', b'{"retired": [1]}', b"\xff", b"null"], ids=lambda each: each[:9]
)
def test_a_list_of_retired_models_that_cannot_be_read_ends_no_site(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "retired-models.json").write_bytes(content)
    assert SiteScaling(site_in(tmp_path)[0]).states() == {}


async def test_a_full_disk_keeps_no_retired_model_loaded_and_the_list_is_written_later(tmp_path: Path) -> None:
    platform, tunnel = site_in(tmp_path)
    is_full = True

    async def write(work: Callable[..., Any], *arguments: Any) -> Any:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return work(*arguments)

    platform = replace(platform, in_thread=write)
    scaling = SiteScaling(platform)
    scaling.settle([replica("a", loading=Loading.LOADED)])
    use = {"by": "central", "pools": {"a": {"waiting": 0, "busy": {}, "retired": True}}}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scaling.run)
        await scaling.take_demand(use)
        await eventually(lambda: tunnel.asked == [("a", False)], what="it to be unloaded")
        tasks.cancel_scope.cancel()
    assert SiteScaling(platform).find("model-of-a") is None
    is_full = False
    await scaling.take_demand(use)  # as central does every ten seconds
    assert SiteScaling(platform).find("model-of-a") is not None


async def test_another_model_in_a_pool_of_the_same_name_is_not_retired(tmp_path: Path) -> None:
    platform, tunnel = site_in(tmp_path)
    scaling = SiteScaling(platform)
    scaling.settle([replica("a")])
    await scaling.take_demand({"by": "central", "pools": {"a": {"retired": True}}})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scaling.run)
        scaling.settle([replica("a", model=HandoffModel("another"))])
        await eventually(lambda: tunnel.asked == [("a", True)], what="it to be loaded")
        tasks.cancel_scope.cancel()


async def test_at_its_deadline_a_retired_model_is_unloaded_while_it_works(tmp_path: Path) -> None:
    platform, tunnel = site_in(tmp_path)
    ended: list[str] = []
    platform.inference.end_pool = ended.append
    scaling = SiteScaling(platform)
    scaling.settle([replica("a", loading=Loading.LOADED)])
    use = {"waiting": 0, "busy": {"one": 1}, "retired": True}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scaling.run)
        await scaling.take_demand({"by": "central", "pools": {"a": {**use, "ends_in_ms": 60_000}}})
        await anyio.wait_all_tasks_blocked()
        assert (tunnel.asked, ended) == ([], []), "there is time left"
        await scaling.take_demand({"by": "central", "pools": {"a": {**use, "ends_in_ms": 0}}})
        await eventually(lambda: tunnel.asked == [("a", False)], what="it to be unloaded")
        assert ended[0] == "a"
        tasks.cancel_scope.cancel()


class Models:
    """The catalog as it is before it was read, and with the model retired after."""

    is_read = False

    def find(self, reference: str) -> CatalogModel | None:
        state = ModelLifecycle.RETIRED if self.is_read else ModelLifecycle.ACTIVE
        return CatalogModel(reference, state, is_read=self.is_read)

    def states(self) -> Mapping[str, ModelLifecycle]:
        return {}


class Demand:
    """One task waits."""

    def use_of(self, pool_id: str) -> PoolUse:
        return PoolUse(waiting=1)

    def busy_of(self, pool_id: str) -> Mapping[str, int]:
        return {}

    def on_demand(self, listener: Callable[[], None]) -> None: ...


async def test_central_says_nothing_about_models_before_it_has_read_its_catalog() -> None:
    """Nor about a pool that it does not see any more, which may well be there."""
    said: list[dict[str, Any]] = []

    async def ask(site: SiteName, topic: str, content: Mapping[str, Any]) -> None:
        said.append(content["pools"])

    models = Models()
    one = replica("a")
    bound = {HOME: {one.handoff.key: one}}
    central = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: datetime(2030, 1, 1, tzinfo=UTC)),
        inference=InferencePorts(models=models, demand=Demand()),
        questions=SimpleNamespace(ask=ask),
    )
    demand = FleetDemand(cast(Any, central), bound)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(demand.run)
        await eventually(lambda: bool(said), what="the site to be told of the use")
        assert "retired" not in said[-1]["a"]
        models.is_read = True
        demand.look()
        await eventually(lambda: said[-1]["a"].get("retired") is True, what="the site to be told")
        bound[HOME] = {}
        demand.look()
        await eventually(lambda: said[-1]["a"] == {"waiting": 0, "busy": {}}, what="the end of the use to be told")
        tasks.cancel_scope.cancel()
