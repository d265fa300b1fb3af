"""Which engine a task reaches, in which order, and what happens to it when that engine is replaced. No sockets."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from homeport.adapters.engine.fake import FakeEngine, Faults
from homeport.core.inference.engines.handoff import Handoff, HandoffModel
from homeport.core.inference.settings import InferenceSettings
from homeport.inference.metrics import InferenceMetrics
from homeport.inference.pools.registry import PoolRegistry
from homeport.inference.tasks.bodies import read_task
from homeport.inference.tasks.running import TaskRun
from homeport.inference.tasks.scheduler import Scheduler
from homeport.ports import InferencePorts, OpenStream
from tests.integration.inference.test_plane import Engines, body_of, replica, running, said, submit
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


class NamedEngines(Engines):
    """Every engine answers with its own address."""

    def connect(self, handoff: Handoff, opens: OpenStream | None = None) -> FakeEngine:
        return self.by_url.setdefault(handoff.url, NamedEngine(handoff.url))


class NamedEngine(FakeEngine):
    def __init__(self, url: str) -> None:
        super().__init__(Faults(token_seconds=0.005))
        self.url = url
        self.is_closed = False

    async def generate(self, request: Any) -> Any:
        async for each in super().generate(replace(request, prompt=self.url)):
            yield each

    async def close(self) -> None:
        self.is_closed = True


def where(events: list[tuple[str, Any]]) -> tuple[str, str, str]:
    """The pool and the replica that the stream names, and the engine whose words it carries."""
    started, words = events[0][1], next(data["t"] for kind, data in events if kind == "token")
    return started["pool_id"], started["replica_id"], words.strip()


async def test_equal_pools_share_tasks_and_each_reaches_the_engine_that_its_stream_names() -> None:
    pools = [replica(name, pool_id=pool, slots_total=9) for pool, name in (("pa", "a"), ("pa", "b"), ("pb", "c"))]
    async with running(*pools, engines=NamedEngines()) as plane:
        runs = [await submit(plane) for _ in range(12)]
        places = [where(await said(run)) for run in runs]
        assert Counter(places) == {(each.pool_id, each.replica_id, each.url): 4 for each in pools}
        pinned = [await submit(plane, placement={"mode": "pin", "pin_pool_id": "pb"}) for _ in range(6)]
        assert {where(await said(run))[0] for run in pinned} == {"pb"}, "however much is free elsewhere"


async def test_interactive_tasks_start_before_batch_ones_that_came_earlier_and_a_cancelled_one_never() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines) as plane:
        holder = await submit(plane)
        waiting: dict[str, TaskRun] = {}
        for name in ("batch 1", "batch 2", "interactive 1", "dropped", "interactive 2"):
            priority = "batch" if name.startswith("batch") else "interactive"
            waiting[name] = await submit(plane, priority=priority)
        await eventually(lambda: engines.by_url["http://r0"].running == 1, what="the slot to be taken")
        waiting["dropped"].cancel("client")
        engines.by_url["http://r0"].faults.hangs_before_first = False
        holder.cancel("client")
        ends = {name: await said(run) for name, run in waiting.items()}
        named = {run.task.task_id: name for name, run in waiting.items()}
        order = [named[each.task_id] for each in plane.scheduler.placements if each.task_id in named]
        assert order == ["interactive 1", "interactive 2", "batch 1", "batch 2"]
        assert [kind for kind, _ in ends["dropped"]] == ["end"], "it was never started"


async def test_a_stream_ends_where_its_cancel_was_acknowledged() -> None:
    engine = FakeEngine(Faults(token_seconds=0.001))
    async with running(replica(), engines=Engines({"http://r0": engine})) as plane:
        run = await submit(plane, max_tokens=2_000)
        await eventually(lambda: run.stream.tokens > 3, what="tokens to come")
        run.cancel("client")
        at_the_cancel = run.stream.tokens
        events = await said(run)
        await eventually(lambda: engine.running == 0, what="the engine to be told")
        assert run.stream.tokens == at_the_cancel
        assert "token" not in {kind for kind, _ in events}, "not even one that was generated before"
        assert (events[-1][0], events[-1][1]["canceled"], engine.closed) == ("end", True, 1)


async def test_a_replica_that_is_replaced_finishes_what_it_has_and_its_successor_gets_the_rest() -> None:
    engines = NamedEngines()
    async with running(replica("old", replica_id="r0"), engines=engines) as plane:
        run = await submit(plane, max_tokens=20)
        await eventually(lambda: run.stream.tokens > 1, what="tokens to come")
        plane.registry.bind(replica("new", replica_id="r0"))
        await eventually(lambda: plane.registry.replicas()[0].ready, what="the new one to be ready")
        after = await submit(plane)
        ends = await said(run)
        assert (where(ends)[2], ends[-1][1]["tokens_out"]) == ("http://old", 20)
        assert where(await said(after))[2] == "http://new"
        old = engines.by_url["http://old"]
        assert isinstance(old, NamedEngine)
        plane.registry.bind(replica("other", replica_id="r1"))
        await eventually(lambda: old.is_closed, what="the old engine to be closed when its last task had ended")


def test_the_predicted_start_is_when_a_task_starts_under_steady_load() -> None:
    """In a time of its own: every task takes two seconds on each of three slots."""
    began = now = 1_000.0
    seconds = 2.0
    registry = PoolRegistry(lambda handoff, opens: FakeEngine(), monotonic=lambda: now)
    registry.bind(replica(slots_total=3))
    (serving,) = registry.replicas()
    serving.live = serving.ready = True
    serving.measured(first_token_ms=10, seconds=seconds, tokens=9)
    scheduler = Scheduler(registry, InferencePorts(), InferenceSettings(), InferenceMetrics(), lambda: now)
    template = read_task(body_of(deadline_ms=600_000))
    tickets = [scheduler.admit(replace(template, task_id=str(n)), caller="me", sites=()) for n in range(16)]
    late: list[float] = []
    while any(ticket.replica is not None for ticket in tickets):
        holders = [ticket for ticket in tickets if ticket.replica is not None]
        late += [1000 * (now - began) - ticket.predicted_start_ms for ticket in holders]
        now += seconds
        for ticket in holders:
            scheduler.release(ticket)
    assert len(late) == len(tickets)
    # When those that run will end is not known: the time of one task is the most that a forecast can be wrong.
    assert max(map(abs, late)) <= 1000 * seconds, late


async def test_snapshots_of_pools_come_in_order_whatever_was_bound_first() -> None:
    names = [("pb", "b"), ("pa", "z"), ("pa", "c")]
    async with running(*(replica(name, pool_id=pool) for pool, name in names)) as plane:
        assert plane.registry.pool_ids() == ["pa", "pb"]
        assert [each.key for each in plane.registry.handoffs()] == [("pa", "c"), ("pa", "z"), ("pb", "b")]
        assert [each.handoff.replica_id for each in plane.registry.replicas("pa")] == ["c", "z"]
        bigger = replica("c", pool_id="pa", slots_total=4, model=HandoffModel("other"))
        plane.registry.bind(bigger)
        assert plane.registry.replicas("pa")[0].handoff == bigger, "an update is seen at once"
