"""A program that floods the log does not make its node look dead, and delays no result."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry

from homeport.adapters.system import SystemClock
from homeport.core.model.node import Tunable
from homeport.core.model.order import Result
from homeport.core.model.protocol import OWN
from homeport.node.journal.journal import Journal
from homeport.node.link.connection import SiteConnection
from homeport.node.link.news import Outlet
from homeport.node.orders.executor import Executor
from homeport.node.pages.metrics import NodeMetrics
from homeport.node.pages.status import NodeStatus
from homeport.node.settings import NodeSettings
from homeport.ports import Beat, FromNode, LogLine, Logs, News, Stream, ToNode, Welcome
from homeport.vocabulary import NodeId, SiteName
from tests.support.builders import NOW, a_node
from tests.support.orders import to_apply
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

LINE_SECONDS = 0.002
"""How long one message takes: five hundred a second, and far more lines are written."""


class SlowLine:
    """A line that takes one message after the other; the site at its end welcomes, and says what it is told to."""

    def __init__(self) -> None:
        self.sent: list[FromNode] = []
        self._into, self._out = anyio.create_memory_object_stream[ToNode](10)
        self._into.send_nowait(Welcome(SiteName("home"), 0.05, OWN))

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Stream]:
        yield self

    async def send(self, message: FromNode) -> None:
        await anyio.sleep(LINE_SECONDS)
        self.sent.append(message)

    def tell(self, message: ToNode) -> None:
        self._into.send_nowait(message)

    async def __aiter__(self) -> AsyncIterator[ToNode]:
        async for message in self._out:
            yield message

    async def unregister(self, node_id: NodeId) -> None:
        raise AssertionError("nobody leaves")

    def close(self) -> None:
        self._into.close()
        self._out.close()

    def first(self, kind: type[FromNode]) -> int | None:
        return next((place for place, each in enumerate(self.sent) if isinstance(each, kind)), None)


async def test_a_flood_of_logs_delays_neither_heartbeats_nor_results(tmp_path: Path) -> None:
    clock, metrics, line = SystemClock(), NodeMetrics(CollectorRegistry()), SlowLine()
    journal, outlet = Journal(tmp_path / "journal"), Outlet(clock, metrics)
    status, levels = NodeStatus(NodeId("one"), "1", "null"), list[str]()
    executor = Executor(handlers={}, journal=journal, outlet=outlet, metrics=metrics, clock=clock)
    connection = SiteConnection(
        settings=NodeSettings(data=tmp_path),
        link=line,
        journal=journal,
        executor=executor,
        outlet=outlet,
        status=status,
        metrics=metrics,
        clock=clock,
        describe=lambda: a_node("one").info,
        set_log_level=levels.append,
    )

    async def flood() -> None:
        while True:
            for _ in range(100):
                outlet.logs(Logs((LogLine(NOW, "deployment/x/web", "info", "again"),)))
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        await tasks.start(executor.run)
        tasks.start_soon(flood)
        tasks.start_soon(connection.run)
        await eventually(lambda: sum(isinstance(each, Logs) for each in line.sent) > 50, what="logs on the line")
        order = to_apply(1)
        await journal.accept([order])
        await journal.finish(Result(order.deployment_id, order.generation, order.kind, True, NOW))
        recorded = len(line.sent)
        outlet.wake()
        await eventually(lambda: line.first(News) is not None, what="the result")
        place = line.first(News)
        assert place is not None
        assert place <= recorded + 3, "it goes next, behind what is under way and a heartbeat"
        beats = [place for place, each in enumerate(line.sent) if isinstance(each, Beat)]
        assert len(beats) >= 2
        line.tell(Tunable(heartbeat_seconds=0.01, log_level="debug"))
        await eventually(lambda: status.tunable.log_level == "debug", what="the settings")
        faster = len(line.sent)
        await eventually(lambda: line.sent[faster:].count(Beat()) >= 5, what="more heartbeats")
        tasks.cancel_scope.cancel()
    assert levels[-1] == "debug"
    logs = [each for each in line.sent if isinstance(each, Logs)]
    assert sum(each.dropped for each in logs) > len(logs), "what gave way is counted where it is missing"
    assert metrics.lane_dropped.labels("logs").value > 0
    journal.close()
    line.close()
