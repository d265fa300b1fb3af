"""A node whose disk is full refuses plainly, touches nothing, and recovers when there is space again."""

from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry

from homeport.adapters.runtime.fake import NullRuntime
from homeport.adapters.system import SystemClock
from homeport.capability.node import Handler
from homeport.core.model.order import Result
from homeport.node.journal.journal import Journal
from homeport.node.link.news import Outlet
from homeport.node.orders import executor as executor_module
from homeport.node.orders.deployments import DeploymentHandler
from homeport.node.orders.executor import Executor
from homeport.node.orders.work import OrderWork
from homeport.node.pages.metrics import NodeMetrics
from homeport.node.settings import NodeSettings
from homeport.ports import Runtime
from homeport.vocabulary import Code
from tests.support.builders import deployment_id
from tests.support.orders import a_component, to_apply
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def limit_pages(journal: Journal, *, more: int) -> None:
    """SQLite answers as on a full disk when its file may not grow."""
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count={pages + more}")


def an_executor(
    runtime: Runtime, journal: Journal, work: OrderWork, outlet: Outlet, metrics: NodeMetrics, **others: Handler
) -> Executor:
    clock = SystemClock()
    handlers = {"deployment": DeploymentHandler(runtime=runtime, work=work, clock=clock), **others}
    return Executor(handlers=handlers, journal=journal, outlet=outlet, metrics=metrics, clock=clock)


async def test_an_order_that_cannot_be_written_down_is_refused_by_code(tmp_path: Path) -> None:
    clock, metrics = SystemClock(), NodeMetrics(CollectorRegistry())
    journal, runtime, outlet = Journal(tmp_path / "journal"), NullRuntime(tmp_path), Outlet(clock, metrics)
    work = OrderWork(NodeSettings(data=tmp_path), runtime, outlet, clock)
    executor = an_executor(runtime, journal, work, outlet, metrics)
    await runtime.start()
    limit_pages(journal, more=0)
    large = to_apply(1, *(a_component(f"part-{number}" * 10) for number in range(500)))
    async with anyio.create_task_group() as tasks:
        await tasks.start(executor.run)
        await executor.order(large)
        with anyio.fail_after(60):
            await outlet.wait()
        (refusal,) = outlet.take()
        assert isinstance(refusal, Result)
        assert refusal.failure is not None
        assert refusal.failure.code == Code.DISK_FULL
        assert not await runtime.observe(deployment_id())
        limit_pages(journal, more=10_000)
        await executor.order(large)
        with anyio.fail_after(60):
            while not journal.outbox:
                await outlet.wait()
        (result,) = journal.outbox.values()
        assert isinstance(result, Result)
        assert result.succeeded
        tasks.cancel_scope.cancel()
    await runtime.close()
    journal.close()


async def test_a_refused_update_says_that_the_release_before_still_runs(tmp_path: Path) -> None:
    """Else the site would bring back what never went away, and give the update up."""
    clock, metrics = SystemClock(), NodeMetrics(CollectorRegistry())
    journal, runtime, outlet = Journal(tmp_path / "journal"), NullRuntime(tmp_path), Outlet(clock, metrics)
    work = OrderWork(NodeSettings(data=tmp_path), runtime, outlet, clock)
    executor = an_executor(runtime, journal, work, outlet, metrics)
    await runtime.start()
    async with anyio.create_task_group() as tasks:
        await tasks.start(executor.run)
        await executor.order(to_apply(1))
        with anyio.fail_after(60):
            while not journal.outbox:
                await outlet.wait()
        outlet.take()
        limit_pages(journal, more=0)
        await executor.order(to_apply(2, *(a_component(f"part-{number}" * 10) for number in range(500))))
        refusals: list[Result] = []
        with anyio.fail_after(60):
            while not refusals:
                await outlet.wait()
                refusals = [each for each in outlet.take() if isinstance(each, Result)]
        assert refusals[0].generation == 2
        assert refusals[0].failure is not None
        assert refusals[0].failure.code == Code.DISK_FULL
        assert refusals[0].release_runs
        tasks.cancel_scope.cancel()
    await runtime.close()
    journal.close()


async def test_a_result_waits_until_it_can_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_module, "WRITE_AGAIN_SECONDS", 0.1)
    clock, metrics = SystemClock(), NodeMetrics(CollectorRegistry())
    journal, runtime, outlet = Journal(tmp_path / "journal"), NullRuntime(tmp_path), Outlet(clock, metrics)
    work = OrderWork(NodeSettings(data=tmp_path), runtime, outlet, clock)
    executor = an_executor(runtime, journal, work, outlet, metrics)
    await runtime.start()
    parts = [a_component(f"part-{number}" * 10, wait=False) for number in range(200)]
    parts[0] = a_component("slow", seconds=1.0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(executor.run)
        await executor.order(to_apply(1, *parts))
        await eventually(lambda: journal.entries, what="the order to be in the journal")
        limit_pages(journal, more=0)
        await eventually(lambda: "result delayed, journal write failed" in caplog.messages, what="a word about it")
        assert not journal.outbox
        limit_pages(journal, more=10_000)
        await eventually(lambda: journal.outbox, what="the result")
        tasks.cancel_scope.cancel()
    await runtime.close()
    journal.close()
