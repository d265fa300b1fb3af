"""What many nodes cost their site: one write for what happens at once, and none while nothing does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from homeport.adapters.store.open import open_store
from homeport.core.model.deployment import Desired
from homeport.core.model.node import NodeInfo
from homeport.core.model.order import Order
from homeport.core.reconcile import plan as planning
from homeport.core.reconcile.demand import place_deployment as place
from homeport.errors import TransientError
from homeport.fleet.shared.snapshot import Snapshot
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.nodes.roster import SAVE_SECONDS
from homeport.fleet.site.state import load_state
from homeport.ports import Store, Transaction
from homeport.vocabulary import Commit, EventKind, Generation, Liveness, NodeId
from homeport.wire.reports import encode
from tests.support.builders import HOME, NOW, a_desired, a_node, deployment_id
from tests.support.clock import ManualClock

pytestmark = pytest.mark.anyio

T = TypeVar("T")
COUNT = 30


@dataclass
class CountedStore:
    inner: Store
    writes: int = 0
    is_failing_once: bool = False

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.writes += 1
        if self.is_failing_once:
            self.is_failing_once = False
            raise TransientError("the disk is busy")
        return await self.inner.write(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class LargeSite:
    conductor: Conductor
    store: CountedStore
    clock: ManualClock
    infos: list[NodeInfo]
    orders: list[tuple[NodeId, Order]] = field(default_factory=list)

    async def arrive(self) -> None:
        """All its nodes open their streams in one moment."""
        async with anyio.create_task_group() as tasks:
            for info in self.infos:
                tasks.start_soon(self.conductor.connected, info, ())

    async def beat(self, seconds: float) -> None:
        """Time passes, with a beat of every node and a sweep in each second."""
        for _ in range(int(seconds)):
            self.clock.passed += 1
            for info in self.infos:
                self.conductor.heartbeat(info.id)
            await self.conductor.sweep()
            await self.conductor.planner.plan()

    async def adopt(self, *wanted: Desired) -> None:
        desired = {item.id: item for item in wanted}
        contents = dict.fromkeys(desired, b"file")
        await self.conductor.adopt(Snapshot(Commit("c" * 40), desired, contents, frozenset(), ()), author="Pat")
        await self.conductor.planner.plan()

    async def events(self, kind: EventKind) -> Sequence[str]:
        async with self.store.read() as reader:
            found = await reader.events(after=0, limit=1000)
        return [event.event.message for event in found if event.event.kind is kind]


@pytest.fixture
async def large(tmp_path: Path) -> AsyncIterator[LargeSite]:
    async with _large_site(tmp_path) as found:
        yield found


@asynccontextmanager
async def _large_site(folder: Path) -> AsyncIterator[LargeSite]:
    clock, orders = ManualClock(), list[tuple[NodeId, Order]]()
    async with open_store(str(folder / "site.db")) as opened:
        store = CountedStore(opened)
        async with store.read() as reader:
            memory = await load_state(reader, HOME, clock.now(), clock.monotonic())
        conductor = Conductor(
            memory,
            store,
            clock,
            encode=encode,
            send=lambda node_id, order: orders.append((node_id, order)),
            stale_seconds=15.0,
            lost_seconds=30.0,
        )
        infos = [a_node(f"n{number:02}").info for number in range(COUNT)]
        yield LargeSite(conductor, store, clock, infos, orders)


async def test_nodes_that_arrive_together_are_a_few_writes(large: LargeSite) -> None:
    await large.arrive()
    assert len(large.conductor.memory.nodes) == COUNT
    assert large.store.writes <= 2, "the first comes alone, the others wait for it together"


async def test_a_write_that_fails_is_told_to_one_node_and_the_others_are_greeted(large: LargeSite) -> None:
    refused: list[NodeId] = []

    async def connected(info: NodeInfo) -> None:
        try:
            await large.conductor.connected(info, ())
        except TransientError:
            refused.append(info.id)

    large.store.is_failing_once = True
    async with anyio.create_task_group() as tasks:
        for info in large.infos:
            tasks.start_soon(connected, info)
    assert len(refused) == 1
    assert large.conductor.memory.nodes.keys() == {info.id for info in large.infos} - {*refused}


async def test_nodes_that_fall_silent_together_are_one_write_and_an_event_each(large: LargeSite) -> None:
    await large.arrive()
    await large.beat(1)
    large.clock.passed += 20
    before = large.store.writes
    await large.conductor.sweep()
    assert large.store.writes == before + 1
    assert {node.liveness for node in large.conductor.memory.nodes.values()} == {Liveness.STALE}
    assert len(await large.events(EventKind.NODE_LIVENESS)) == COUNT


async def test_at_rest_the_times_of_hearing_are_all_that_is_written_and_seldom(large: LargeSite) -> None:
    await large.arrive()
    await large.beat(1)
    before = large.store.writes
    await large.beat(3 * SAVE_SECONDS)
    assert large.store.writes - before == 3
    async with large.store.read() as reader:
        seen = [node.last_seen for node in await reader.nodes()]
    assert min(seen) >= NOW + timedelta(seconds=2 * SAVE_SECONDS)


async def test_a_disk_that_fills_up_is_written_with_the_times_of_hearing_and_plans_nothing(large: LargeSite) -> None:
    await large.arrive()
    await large.beat(1)
    before = large.store.writes
    for info in large.infos:
        await large.conductor.register(replace(info, capabilities=replace(info.capabilities, disk_free_bytes=7)))
    assert large.store.writes == before
    assert not large.conductor.planner.marks
    await large.beat(SAVE_SECONDS)
    async with large.store.read() as reader:
        assert {node.info.capabilities.disk_free_bytes for node in await reader.nodes()} == {7}


async def test_a_deployment_that_cannot_be_planned_is_set_aside_and_the_others_go_on(
    large: LargeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_for_the_first(desired: Desired, *rest: Any) -> Any:
        if desired.id == deployment_id(1):
            raise ZeroDivisionError("no such thing")
        return place(desired, *rest)

    monkeypatch.setattr(planning, "place_deployment", fails_for_the_first)
    await large.arrive()
    await large.adopt(a_desired(1), a_desired(2))
    assert {order.deployment_id for _, order in large.orders} == {deployment_id(2)}
    (said,) = await large.events(EventKind.DEPLOYMENT_REFUSED)
    assert said == "app-1 is left as it is: ZeroDivisionError('no such thing')"
    await large.conductor.reconcile()
    assert len(await large.events(EventKind.DEPLOYMENT_REFUSED)) == 1, "it is said once"
    monkeypatch.setattr(planning, "place_deployment", place)
    await large.conductor.reconcile()
    assert {order.deployment_id for _, order in large.orders} == {deployment_id(1), deployment_id(2)}
    assert large.conductor.memory.set_aside == {}


async def test_an_order_whose_number_does_not_grow_is_set_aside_alone_and_central_hears_of_it(
    large: LargeSite,
) -> None:
    """As after a database whose counter was lost: the node would refuse the order, and the site must not end."""
    await large.arrive()
    await large.adopt(a_desired(1), a_desired(2))
    memory = large.conductor.memory
    for key, instance in list(memory.instances.items()):
        if key[0] == deployment_id(1):
            memory.instances[key] = replace(instance, generation=Generation(2**62))
    await large.adopt(a_desired(1, at="second"), a_desired(2, at="second"))
    assert memory.set_aside.keys() == {deployment_id(1)}
    assert {order.deployment_id for _, order in large.orders[-len(large.infos) :]} == {deployment_id(2)}
    (said,) = await large.events(EventKind.DEPLOYMENT_REFUSED)
    assert "is not newer than 4611686018427387904" in said
    async with large.store.read() as reader:
        row = await reader.deployment(deployment_id(1))
        reports = [each.body for each in await reader.outbox(limit=1000)]
    assert row is not None and row.set_aside == memory.set_aside[deployment_id(1)]
    told = [body for body in reports if body["kind"] == "plan-set-aside"]
    assert [body["why"] for body in told] == [row.set_aside]
