"""What a large site costs at rest, and how soon it is itself again when all its nodes come back at once: the deciding
half of a site, with its real store, for nodes that have apps. What their streams cost is measured in `links`."""

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio

from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.core.model.node import NodeInfo
from homeport.core.model.order import Held, Order, Result
from homeport.fleet.shared.periodic import every
from homeport.fleet.shared.snapshot import Snapshot
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.state import load_state
from homeport.ports import Store, Transaction
from homeport.vocabulary import Commit, NodeId, OrderKind, SiteName, State
from homeport.wire.reports import encode
from tests.support.builders import a_desired, a_node

BEAT_SECONDS = 5.0
SWEEP_SECONDS = 1.0
NEWS_MAX = 200

T = TypeVar("T")
Numbers = dict[str, float]


@dataclass
class _Counted:
    """A store that counts what is made durable."""

    inner: Store
    writes: int = 0

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.writes += 1
        return await self.inner.write(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class _Nodes:
    """Many nodes that obey at once."""

    infos: list[NodeInfo]
    orders: list[tuple[NodeId, Order]] = field(default_factory=list)
    held: dict[NodeId, dict[str, Held]] = field(default_factory=dict)

    def send(self, node_id: NodeId, order: Order) -> None:
        self.orders.append((node_id, order))

    async def obey(self, conductor: Conductor) -> None:
        while self.orders:
            taken, self.orders = self.orders[:NEWS_MAX], self.orders[NEWS_MAX:]
            await conductor.take([(node_id, self._result(node_id, order)) for node_id, order in taken])

    def _result(self, node_id: NodeId, order: Order) -> Result:
        revision = None if order.release is None else order.release.revision
        held = Held(order.deployment_id, order.generation, order.kind, revision, done=True)
        self.held.setdefault(node_id, {})[order.deployment_id] = held
        removal = order.kind is OrderKind.REMOVE
        return Result(
            order.deployment_id, order.generation, order.kind, succeeded=True, at=datetime.now(UTC), deleted=removal
        )


def large_site(nodes: int = 1000, apps: int = 10, *, seconds: float = 30.0) -> Numbers:
    """Share of a core and durable writes at rest, and seconds until all are settled after a return."""
    return anyio.run(_measure, nodes, apps, seconds)


async def _measure(nodes: int, apps: int, seconds: float) -> Numbers:
    numbers: Numbers = {}
    async with _site(nodes) as (conductor, store, crowd):
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for info in crowd.infos:
                tasks.start_soon(conductor.connected, info, ())
        desired = {item.id: item for item in (a_desired(number) for number in range(1, apps + 1))}
        contents = dict.fromkeys(desired, b"file")
        await conductor.adopt(Snapshot(Commit("c" * 40), desired, contents, frozenset(), ()), author="bench")
        await _settled(conductor, crowd, nodes * apps)
        numbers["installed s"] = time.monotonic() - began
        await anyio.sleep(3)
        cpu, wall, writes = time.process_time(), time.monotonic(), store.writes
        await anyio.sleep(seconds)
        numbers["rest CPU %"] = 100 * (time.process_time() - cpu) / (time.monotonic() - wall)
        numbers["rest writes in 30 s"] = (store.writes - writes) * 30 / (time.monotonic() - wall)
        numbers["return s"] = await _return(conductor, crowd, nodes * apps)
    return numbers


async def _return(conductor: Conductor, crowd: _Nodes, wanted: int) -> float:
    """All were lost and come back in one moment, with another label each, so that everything must be looked at."""
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for info in crowd.infos:
            held = tuple(crowd.held[info.id].values())
            tasks.start_soon(conductor.connected, replace(info, labels={"back": "yes"}), held)
    await _settled(conductor, crowd, wanted)
    return time.monotonic() - began


async def _settled(conductor: Conductor, crowd: _Nodes, wanted: int) -> None:
    while True:
        await crowd.obey(conductor)
        states = [item.state for item in conductor.memory.instances.values()]
        if len(states) == wanted and set(states) == {State.INSTALLED} and not crowd.orders:
            return
        await anyio.sleep(0.05)


async def _beat(conductor: Conductor, crowd: _Nodes) -> None:
    while True:
        for number, info in enumerate(crowd.infos):
            if info.id in conductor.memory.nodes:
                conductor.heartbeat(info.id)
            if number % 20 == 0:
                await anyio.sleep(BEAT_SECONDS * 20 / len(crowd.infos))


@asynccontextmanager
async def _site(nodes: int) -> AsyncIterator[tuple[Conductor, _Counted, _Nodes]]:
    clock, crowd = SystemClock(), _Nodes([a_node(f"node-{number:04}").info for number in range(nodes)])
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(str(Path(folder) / "site.db")) as opened:
            store = _Counted(opened)
            async with store.read() as reader:
                memory = await load_state(reader, SiteName("home"), clock.now(), clock.monotonic())
            conductor = Conductor(
                memory, store, clock, encode=encode, send=crowd.send, stale_seconds=15.0, lost_seconds=30.0
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(every, "sweep", SWEEP_SECONDS, conductor.sweep)
                tasks.start_soon(conductor.planner.run)
                tasks.start_soon(_beat, conductor, crowd)
                yield conductor, store, crowd
                tasks.cancel_scope.cancel()
