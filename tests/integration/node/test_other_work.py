"""A second kind of work on a node, beside deployments: its own journal entries, workers and results."""

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry

from homeport.adapters.system import SystemClock
from homeport.capability.node import Done
from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Result, WorkKey
from homeport.core.node.entry import JournalEntry
from homeport.node.journal.journal import Journal
from homeport.node.link.news import Outlet
from homeport.node.orders.executor import Executor
from homeport.node.pages.metrics import NodeMetrics
from homeport.vocabulary import Code, DeploymentId, Generation, OrderKind
from tests.support.builders import NOW

pytestmark = pytest.mark.anyio


def an_order(work: str, generation: int, content: bytes = b"") -> Order:
    return Order(
        Generation(generation), DeploymentId("x"), OrderKind.APPLY, None, work=work, content=content, reason="a test"
    )


@dataclass
class Echo:
    """Answers with what it was given."""

    work: str
    began: list[Generation] = field(default_factory=list)
    hold: anyio.Event | None = None

    def accepted(self, order: Order) -> None:
        assert order.work == self.work

    async def carry_out(self, entry: JournalEntry) -> Done:
        self.began.append(entry.order.generation)
        if self.hold is not None:
            await self.hold.wait()
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


@dataclass
class Bench:
    folder: Path
    handlers: dict[str, Echo]

    def __post_init__(self) -> None:
        metrics, clock = NodeMetrics(CollectorRegistry()), SystemClock()
        self.journal = Journal(self.folder / "journal")
        self.outlet = Outlet(clock, metrics)
        self.executor = Executor(
            handlers=self.handlers, journal=self.journal, outlet=self.outlet, metrics=metrics, clock=clock
        )

    async def results(self, count: int) -> list[Result]:
        with anyio.fail_after(60):
            while len(self.journal.outbox) < count:
                await self.outlet.wait()
        return [news for news in self.journal.outbox.values() if isinstance(news, Result)]


async def test_work_of_an_unknown_kind_is_refused_by_code_and_stays_out_of_the_journal(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"job": Echo("job")})
    async with anyio.create_task_group() as tasks:
        await tasks.start(bench.executor.run)
        await bench.executor.order(an_order("dream", 7))
        await bench.executor.order(an_order("job", 1))
        (done,) = await bench.results(1)
        (refusal,) = bench.outlet.take()
        tasks.cancel_scope.cancel()
    assert isinstance(refusal, Result)
    assert refusal.failure is not None
    assert (refusal.work, refusal.generation, refusal.failure.code) == ("dream", 7, Code.UNKNOWN_KIND)
    assert "it takes job" in refusal.failure.message
    assert (done.work, done.succeeded) == ("job", True)
    assert list(bench.journal.entries) == [WorkKey("job", "x")]
    bench.journal.close()


async def test_two_kinds_with_one_id_are_two_things_and_both_outlive_a_restart(tmp_path: Path) -> None:
    first = Bench(tmp_path, {"job": Echo("job", hold=anyio.Event()), "deployment": Echo("deployment")})
    async with anyio.create_task_group() as tasks:
        await tasks.start(first.executor.run)
        await first.executor.order(an_order("job", 3, b"abc"))
        await first.executor.order(an_order("deployment", 5))
        assert [each.work for each in await first.results(1)] == ["deployment"]
        await first.executor.order(an_order("job", 2))
        tasks.cancel_scope.cancel()
    first.journal.close()
    again = Bench(tmp_path, {"job": Echo("job"), "deployment": Echo("deployment")})
    assert {key: entry.held.work for key, entry in again.journal.entries.items()} == {
        WorkKey("job", "x"): "job", WorkKey("deployment", "x"): "deployment"
    }  # fmt: skip

    async def nothing(_entry: JournalEntry) -> None:
        pass

    async with anyio.create_task_group() as tasks:
        await tasks.start(again.executor.run)
        again.executor.resume(nothing)
        results = {each.work: each for each in await again.results(2)}
        tasks.cancel_scope.cancel()
    assert (results["job"].generation, results["job"].content) == (3, b"cba")
    assert again.handlers["deployment"].began == [], "what had ended is not begun again"
    again.journal.close()


async def test_work_that_is_done_once_is_forgotten_when_the_site_has_its_result(tmp_path: Path) -> None:
    """And an order for it that was sent twice is not carried out again."""
    journal = Journal(tmp_path / "journal.sqlite3")
    journal.one_off = frozenset({"job"})
    job, kept = an_order("job", 1), an_order("echo", 1)
    await journal.accept([job, kept])
    for order in (job, kept):
        await journal.finish(Echo(order.work)._result(order, None))
    await journal.acknowledge(max(journal.outbox))
    assert set(journal.entries) == {WorkKey("echo", "x")}
    assert journal.is_forgotten(job)
    assert not journal.is_forgotten(an_order("job", 2))
    journal.close()
    again = Journal(tmp_path / "journal.sqlite3")
    assert set(again.entries) == {WorkKey("echo", "x")}
    again.close()
