"""A real node in the test's own event loop, its null runtime, and a scripted site on a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.adapters.runtime.fake import NullRuntime
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.ports import Runtime, SiteLink
from homeport.vocabulary import NodeId
from tests.support.ports import free_port
from tests.support.scripted_site import ScriptedSite


@dataclass
class Bench:
    """Where a test starts and stops its node and its site."""

    site: ScriptedSite
    port: int
    settings: NodeSettings

    def with_settings(self, **changes: object) -> "Bench":
        return Bench(self.site, self.port, replace(self.settings, **changes))  # type: ignore[arg-type]

    @asynccontextmanager
    async def node(self, runtime: Runtime | None = None, link: SiteLink | None = None) -> AsyncIterator[Runtime]:
        runtime = runtime or NullRuntime(self.settings.data)
        ready = anyio.Event()
        link = link or GrpcSiteLink("127.0.0.1", self.port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_node, self.settings, link, runtime, on_ready=ready.set))
            with anyio.fail_after(60):
                await ready.wait()
            yield runtime
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def connected(self, runtime: Runtime | None = None) -> AsyncIterator[Runtime]:
        async with self.site.serving(self.port), self.node(runtime) as running:
            await self.site.until(lambda: self.site.hellos)
            yield running


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    port = free_port()
    settings = NodeSettings(
        data=tmp_path / "node",
        site_address=f"127.0.0.1:{port}",
        node_id=NodeId("node-under-test"),
        http_address=None,
        observe_seconds=0.1,
        engine_seconds=0.2,
        reconnect_first_seconds=0.05,
        reconnect_max_seconds=0.2,
        steady_seconds=0.1,
    )
    return Bench(ScriptedSite(), port, settings)
