"""F3: a site that is cut off for a day. What waits stays small, and afterwards central tells the same story.

The real conductor on a real database, with a scripted day and a clock that jumps; the real intake on another.
"""

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest

from homeport.adapters.git.repository import open_repository
from homeport.adapters.store.open import open_store
from homeport.adapters.system import RandomIds
from homeport.core.model.deployment import Desired
from homeport.core.model.event import HistoryEntry
from homeport.core.model.order import Order, Progress, Result
from homeport.errors import PeerUnavailable
from homeport.fleet.central.index import Index
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.fleet.shared.adoption import wanted_row
from homeport.fleet.shared.snapshot import Snapshot
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.reports.outbox import forward
from homeport.fleet.site.reports.queue import WEIGH_BYTES
from homeport.fleet.site.reports.resync import BATCH_MAX, DROPPED, OUTBOX_BYTES_MAX
from homeport.fleet.site.state import load_state
from homeport.ports import DeploymentFilter, JoinAnswer, Lineage, Outgoing, Reader, Store, Transaction
from homeport.vocabulary import Commit, DeploymentId, EventKind, NodeId, OrderKind, SiteName, State, Step
from homeport.wire.reports import encode
from tests.faults.conftest import IS_LONG
from tests.support.builders import HOME, NOW, a_desired, a_node
from tests.support.git import bare_repository
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

DISK_BYTES_MAX = 10_000_000
DEPLOYMENTS, COMMIT_SECONDS, CHANGES = (200, 300, 16) if IS_LONG else (50, 3600, 20)
NODES = tuple(f"node-{number}" for number in range(4))


class JumpingClock:
    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed


class Line:
    """Central as a site sees it over a line that can be cut."""

    def __init__(self, intake: ReportIntake) -> None:
        self.intake = intake
        self.is_cut = True
        self.calls = 0

    async def join(
        self, site: SiteName, *, epoch: str, software_version: str, lineage: Lineage | None = None
    ) -> JoinAnswer:
        self._reach()
        return await self.intake.join(site, epoch=epoch, software_version=software_version, lineage=lineage)

    async def report(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
    ) -> int:
        self._reach()
        self.calls += 1
        return await self.intake.take(site, reports, epoch=epoch, seen=seen, start=start)

    def _reach(self) -> None:
        if self.is_cut:
            raise PeerUnavailable("the line is cut")


@dataclass
class Fleet:
    clock: JumpingClock
    site: Store
    central: Store
    conductor: Conductor
    line: Line
    orders: list[tuple[NodeId, Order]]
    desired: dict[DeploymentId, Desired]
    commits: int = 0

    async def commit(self, *numbers: int) -> None:
        """Somebody changes these deployments in Git; their nodes obey."""
        self.commits += 1
        changed = {item.id: item for item in (self._changed(number) for number in numbers)}
        self.desired.update(changed)
        commit = Commit(f"{self.commits:040x}")
        contents = {key: item.revision.encode() for key, item in changed.items()}
        await self.conductor.adopt(Snapshot(commit, self.desired, contents, frozenset(), ()), author="Pat")
        await self.conductor.planner.plan()
        await self.obey()

    def _changed(self, number: int) -> Desired:
        return a_desired(number, at=f"{number} at {self.commits}", nodes=(NODES[number % len(NODES)],))

    async def obey(self) -> None:
        """The nodes carry out what they were told, with the commentary of a real one."""
        heard, self.orders[:] = [*self.orders], []
        news: list[tuple[NodeId, Progress | Result]] = []
        for node_id, order in heard:
            for step in (Step.ACCEPTED, Step.PULLING, Step.CREATING, Step.HEALTHY):
                told = Progress(order.deployment_id, order.generation, step, "web", f"{step} web", self.clock.now())
                news.append((node_id, told))
            result = Result(
                order.deployment_id,
                order.generation,
                order.kind,
                succeeded=True,
                at=self.clock.now(),
                deleted=order.kind is OrderKind.REMOVE,
            )
            news.append((node_id, result))
        await self.conductor.take(news)

    async def drift(self, number: int) -> None:
        """Somebody stops a container, and its node starts it again."""
        (key,) = [key for key in self.conductor.memory.instances if key[0] == a_desired(number).id]
        generation = self.conductor.memory.instances[key].generation
        for step, words in ((Step.DRIFTED, "web has exited"), (Step.RESTORED, "web runs again")):
            await self.conductor.take([(key[1], Progress(key[0], generation, step, "web", words, self.clock.now()))])

    async def beat(self, *, without: str = "") -> None:
        for name in NODES:
            if name != without:
                self.conductor.heartbeat(NodeId(name))
        await self.conductor.sweep()
        await self.conductor.planner.plan()

    async def waiting_bytes(self) -> int:
        async with self.site.read() as reader:
            return await reader.outbox_bytes()

    async def heal(self) -> float:
        """Connects the line; how many seconds passed until central has taken everything."""
        self.line.is_cut, began = False, anyio.current_time()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._forward)
                await eventually(self._is_empty)
                tasks.cancel_scope.cancel()
        return anyio.current_time() - began

    async def _is_empty(self) -> bool:
        async with self.site.read() as reader:
            return await reader.outbox_size() == 0

    async def _forward(self) -> None:
        await forward(
            self.site,
            self.line,  # type: ignore[arg-type]
            self.conductor,
            site=HOME,
            epoch="one",
            lineage=Lineage(("first",), 0),
            ids=RandomIds(),
            software_version="1",
            heartbeat_seconds=0.05,
        )


@asynccontextmanager
async def fleet(tmp_path: Path, *, outbox_bytes_max: int = OUTBOX_BYTES_MAX) -> AsyncIterator[Fleet]:
    clock, orders = JumpingClock(), list[tuple[NodeId, Order]]()
    async with open_store(str(tmp_path / "site.db")) as site, open_store(str(tmp_path / "central.db")) as central:
        async with site.read() as reader:
            memory = await load_state(reader, HOME, clock.now(), clock.monotonic())
        conductor = Conductor(
            memory,
            site,
            clock,
            encode=encode,
            send=lambda node_id, order: orders.append((node_id, order)),
            stale_seconds=15.0,
            lost_seconds=60.0,
            outbox_bytes_max=outbox_bytes_max,
        )
        git = await open_repository(str(bare_repository(tmp_path / "git")), tmp_path / "clone")
        line = Line(ReportIntake(central, Index(central, git, clock), clock))
        yield Fleet(clock, site, central, conductor, line, orders, {})


async def install(fleet: Fleet, count: int) -> None:
    """So many deployments run and central knows them; then the line is cut."""
    for name in NODES:
        await fleet.conductor.register(a_node(name).info)
    await fleet.commit(*range(count))

    async def index(tx: Transaction) -> None:
        commit = Commit("f" * 40)
        await tx.put_deployments(
            [wanted_row(None, item, commit, author="Pat", now=fleet.clock.now()) for item in fleet.desired.values()]
        )

    await fleet.central.write(index)
    await fleet.heal()
    fleet.line.is_cut = True


async def standing(reader: Reader) -> list[object]:
    """Everything that central and the site must agree on."""
    instances = [replace(each, version=0, step="", updated_at=NOW) for each in await reader.instances()]
    states = [(row.id, row.state) for row in await reader.deployments(DeploymentFilter())]
    nodes = [(node.id, node.liveness) for node in await reader.nodes()]
    return [[each for each in instances if each.state is not State.DELETED], states, nodes]


async def agree(fleet: Fleet) -> None:
    async with fleet.site.read() as here, fleet.central.read() as there:
        assert await standing(there) == await standing(here)
        refused = [
            each.event.message
            for each in await there.events(after=0, limit=10**6)
            if each.event.kind in {EventKind.DEPLOYMENT_REFUSED, EventKind.INSTANCE_STALE}
        ]
    assert refused == []


async def a_day(fleet: Fleet, *, count: int) -> None:
    """A commit every few minutes, drift now and then, a node that goes and comes back."""
    for tick in range(24 * 3600 // COMMIT_SECONDS):
        fleet.clock.passed += COMMIT_SECONDS
        await fleet.beat(without=NODES[0] if tick % 12 == 0 else "")
        await fleet.commit(*((tick * CHANGES + each) % count for each in range(CHANGES)))
        await fleet.drift(tick % count)


async def histories(reader: Reader, fleet: Fleet) -> dict[DeploymentId, list[HistoryEntry]]:
    return {key: list(await reader.history(key)) for key in sorted(fleet.desired)}


def pages_bytes(path: Path) -> int:
    """What the outbox takes in the database's file, with all that the database adds."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'outbox'").fetchone()
    return int(size)


async def test_a_day_of_churn_fits_and_arrives_in_order_once(tmp_path: Path) -> None:
    async with fleet(tmp_path) as day:
        await install(day, DEPLOYMENTS)
        await a_day(day, count=DEPLOYMENTS)
        async with day.site.read() as reader:
            count, size = await reader.outbox_size(), await reader.outbox_bytes()
        on_disk = pages_bytes(tmp_path / "site.db")
        print(f"{count} reports wait after a day: {size} bytes, {on_disk} on disk, {size // count} for one")
        assert count > 2 * CHANGES * 24 * 3600 // COMMIT_SECONDS
        assert on_disk < DISK_BYTES_MAX
        seconds = await day.heal()
        print(f"central has them all {seconds:.1f} s after the line is whole, in {day.line.calls} calls")
        await agree(day)
        async with day.site.read() as here, day.central.read() as there:
            assert await histories(there, day) == await histories(here, day)
            assert await here.value(DROPPED) is None


async def test_a_full_outbox_drops_history_and_keeps_the_present(tmp_path: Path) -> None:
    """So much that the history gives way more than once. Every step is told, or counted as lost."""
    bound = 300_000
    async with fleet(tmp_path, outbox_bytes_max=bound) as day:
        await install(day, 20)
        gone = day.desired.pop(a_desired(7).id)
        await unindex(day, gone.id)
        for tick in range(28):
            day.clock.passed += COMMIT_SECONDS
            await day.beat(without=NODES[0] if tick % 2 else "")
            await day.commit(*(number for number in range(20) if number != 7))
            assert await day.waiting_bytes() < bound + 3 * WEIGH_BYTES
        async with day.site.read() as reader:
            waiting = await reader.outbox(limit=10**6)
            dropped = int(await reader.value(DROPPED) or 0)
        (head,) = [item for item in waiting if item.body["kind"] == "restating"]
        assert head.body["reports_lost"] == dropped > BATCH_MAX
        assert [item.sequence for item in waiting[:BATCH_MAX]] == [waiting[0].sequence + n for n in range(BATCH_MAX)]
        await day.heal()
        await agree(day)
        async with day.site.read() as here, day.central.read() as there:
            ours, theirs = await histories(here, day), await histories(there, day)
            left = await there.deployment(gone.id)
            words = [each.event for each in await there.events(after=0, limit=10**6)]
        assert left is not None
        assert left.state is State.DELETED
        assert left.archived_at is not None
        for key, entries in ours.items():
            (line,) = [each for each in theirs[key] if each.verdict == "restated"]
            told, lost = theirs[key].index(line), int(line.reason.split(" ")[0])
            kept = [each for each in theirs[key] if each.verdict == "stepped"]
            assert lost + len(kept) == len(entries)
            assert kept == entries[:told] + entries[told + lost :]
            assert "were not kept" in line.reason
        (said,) = [each for each in words if each.kind is EventKind.SITE_RESTATED]
        assert said.data["reports_lost"] == dropped
        assert said.data["since"] == head.body["since"]
        assert f"{dropped} reports that waited since 2026-03-0" in said.message
        async with day.site.read() as here:
            told_here = [each.event for each in await here.events(after=0, limit=10**6)]
        assert len([each for each in told_here if each.kind is EventKind.SITE_RESTATED]) >= 2


async def unindex(fleet: Fleet, deployment_id: DeploymentId) -> None:
    """Central sees in Git that the file is gone."""

    async def work(tx: Transaction) -> None:
        (row,) = await tx.deployments_by_ids([deployment_id])
        await tx.put_deployments([replace(row, wanted=False, version=row.version + 1)])

    await fleet.central.write(work)
