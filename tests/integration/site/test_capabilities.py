"""A capability is a line in the list of a site and one in the list of a node: its work goes from the one to the other
and back, its loops run, its routes are served, and nobody else has to know of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.adapters.runtime.fake import NullRuntime
from homeport.capability.node import Done, NodeCapability, NodePart, NodePlatform
from homeport.capability.site import SiteCapability, SitePart
from homeport.core.access.actions import Action, Audit, Level, Scope
from homeport.core.model.instance import Failure
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.core.node.entry import JournalEntry
from homeport.fleet.site.platform import SitePlatform
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.ports import Logs, Telemetry
from homeport.serving.capability import Routes
from homeport.serving.routing import Router
from homeport.vocabulary import DeploymentId, Generation, NodeId, OrderKind
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_maintenance import asking
from tests.support.builders import NOW
from tests.support.git import Person
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

KIND, ONE = "echo", NodeId("one")


@dataclass
class EchoAtSite:
    """Orders one echo of each node that connects."""

    platform: SitePlatform
    heard: list[bytes] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    rounds: int = 0

    async def connected(self, node_id: NodeId, held: Sequence[Held]) -> None:
        assert node_id in self.platform.nodes()
        order = Order(Generation(1), DeploymentId("x"), OrderKind.APPLY, None, work=KIND, content=b"abc")
        self.platform.send(node_id, order)

    async def take(self, news: Sequence[tuple[NodeId, Progress | Result]]) -> None:
        self.heard += [item.content for _, item in news if isinstance(item, Result)]

    async def run(self) -> None:
        self.rounds += 1
        await anyio.sleep_forever()

    def on_stream(self, node_id: NodeId, message: Logs | Telemetry) -> None:
        if isinstance(message, Telemetry):
            self.samples.append(message.at.timestamp())

    def routes(self) -> Routes:
        router = Router(tags=["echo"])

        @router.get("/api/v1/echo", summary="The echoes that were heard")
        async def count() -> list[str]:
            return [item.decode() for item in self.heard]

        return Routes(router, {("GET", "/api/v1/echo"): Action("echo.read", Level.VIEWER, Scope.NONE, Audit.NONE)})


@dataclass
class EchoAtNode:
    platform: NodePlatform

    def accepted(self, order: Order) -> None:
        pass

    async def carry_out(self, entry: JournalEntry) -> Done:
        return Done(self._result(entry.order, None))

    async def give_up(self, entry: JournalEntry, failure: Failure) -> Done:
        return Done(self._result(entry.order, failure))

    async def refused(self, order: Order, failure: Failure, entry: JournalEntry | None) -> Result:
        return self._result(order, failure)

    def _result(self, order: Order, failure: Failure | None) -> Result:
        return Result(
            order.deployment_id, order.generation, order.kind, failure is None, NOW, failure,
            work=order.work, content=order.content[::-1],
        )  # fmt: skip

    async def measure(self) -> None:
        while True:
            self.platform.telemetry(Telemetry(NOW, ()))
            await anyio.sleep(0.05)


async def test_work_of_a_capability_goes_to_its_node_and_back(
    person: Person, start: OpenSite, tmp_path: Path
) -> None:
    made: list[EchoAtSite] = []

    def at_site(platform: SitePlatform) -> SitePart:
        echo = EchoAtSite(platform)
        made.append(echo)
        return SitePart(works={KIND: echo}, routes=(echo.routes(),), on_stream=echo.on_stream, loops=(echo.run,))

    def at_node(platform: NodePlatform) -> NodePart:
        echo = EchoAtNode(platform)
        return NodePart(handlers={KIND: echo}, loops=(echo.measure,))

    settings = NodeSettings(data=tmp_path / "node", node_id=ONE, http_address=None)
    async with start(capabilities=[SiteCapability(KIND, at_site)]) as site, anyio.create_task_group() as tasks:
        (echo,) = made

        async def node() -> None:
            await run_node(
                settings,
                InProcessLink(site.parts.reception),
                NullRuntime(tmp_path / "node"),
                capabilities=[NodeCapability(KIND, at_node)],
            )

        tasks.start_soon(node)
        await eventually(lambda: echo.heard == [b"cba"] and bool(echo.samples))
        assert echo.rounds == 1
        async with asking(site) as client:
            assert (await client.get("/api/v1/echo")).body == ["cba"]
        tasks.cancel_scope.cancel()
