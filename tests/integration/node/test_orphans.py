"""What a node that lost its folder left on the engine is found, and removed on the site's word alone."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from homeport.ports import FoundWorkloads, Orphans, Owned
from homeport.vocabulary import NodeId
from tests.integration.node.conftest import Bench
from tests.support.builders import deployment_id
from tests.support.fickle_runtime import FickleRuntime
from tests.support.orders import to_apply

pytestmark = pytest.mark.anyio


class Shared(FickleRuntime):
    """An engine that has kept what a node of another id left."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.left = [
            Owned(NodeId("before"), deployment_id(5), "web"),
            Owned(NodeId("before"), deployment_id(6), "web"),
        ]

    async def owned(self) -> Sequence[Owned]:
        mine = [Owned(NodeId("node-under-test"), key, name) for key, parts in self._running.items() for name in parts]
        return [*self.left, *mine]

    async def remove_owned(self, item: Owned) -> None:
        self.left.remove(item)


async def test_what_another_id_left_is_removed_when_the_site_says_so(bench: Bench) -> None:
    bench = bench.with_settings(orphan_seconds=0.1)
    runtime = Shared(bench.settings.data)
    first, second = runtime.left
    async with bench.connected(runtime):
        await bench.site.order(to_apply(1))
        await bench.site.until(lambda: bench.site.found)
        assert bench.site.found[-1] == FoundWorkloads((first, second)), "what it has itself is no question"
        mine = Owned(NodeId("node-under-test"), deployment_id(), "web")
        await bench.site.send(Orphans((first, mine)))
        await bench.site.until(lambda: bench.site.notices)
        assert runtime.left == [second]
        assert len(await runtime.observe(deployment_id())) == 1, "what its journal knows stays, whatever is said"
        (notice,) = bench.site.notices
        assert notice.code == "orphans-removed"
        assert deployment_id(5) in notice.message


async def test_a_connection_that_is_ended_at_once_does_not_end_the_backoff(bench: Bench) -> None:
    bench = bench.with_settings(reconnect_max_seconds=0.4)
    bench.site.hangs_up = True
    async with bench.site.serving(bench.port), bench.node():
        await bench.site.until(lambda: len(bench.site.hellos) == 1)
        started = time.monotonic()
        await bench.site.until(lambda: len(bench.site.hellos) == 6)
        assert time.monotonic() - started > 0.5
