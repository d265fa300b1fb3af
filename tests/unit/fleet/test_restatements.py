"""What central has missed of a deployment is asked of its site again, until the site has answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import anyio
import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.deployment import Pin, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.protocol import OWN, UNSAID, PeerProtocol
from homeport.core.model.report import InstanceSnapshot, Pinned, PlanSetAside, Report
from homeport.fleet.central.index import Index
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.fleet.central.reports.restatements import RESTATE, ask_again, note_missed
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.site.reports.resync import restated
from homeport.fleet.site.state import SiteState
from homeport.ports import Addressed, Change, Outgoing, Restate
from homeport.vocabulary import Actor, DeploymentId, Digest, Generation, Incarnation, NodeId, SiteName, State, Trigger
from homeport.wire.reports import encode
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock, SeededIds
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import an_instance
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

ID = DeploymentId("c0ffee00-5eed-4000-8000-00decade0000")
NORTH, SOUTH = SiteName("north"), SiteName("south")
AT = datetime(2026, 3, 1, tzinfo=UTC)


def file_at(site: str) -> Change:
    path, text = deployment_file(site=site, deployment_id=ID)
    return Change(path, text.encode())


class Central:
    """With the deployment at north, where it runs as the site last reported."""

    def __init__(self) -> None:
        self.remote, clock, bus = Remote(MachineClock().now), MachineClock(), InProcessBus()
        self.store, self.calls = MemoryStore(Disk()), SiteMessages(bus)
        self.queries = SiteQueries(self.calls, SeededIds(Random(0)), bus)
        self.index = Index(self.store, MemoryGit(self.remote, []), clock)
        self.intake = ReportIntake(self.store, self.index, clock)
        self.reported = 0

    async def begin(self, protocol: PeerProtocol = OWN) -> None:
        markers = [Change(marker_path(site), render_marker(site)) for site in (NORTH, SOUTH)]
        self.remote.push([*markers, file_at("north")], message="deploy")
        await self.index.catch_up()
        await self.intake.join(NORTH, epoch="one", software_version="1", protocol=protocol)
        await self.report(InstanceSnapshot(await self.installed()))

    async def move_there_and_back(self) -> None:
        """Its site sees nothing of it: the file is what it was."""
        self.remote.push([Change(file_at("north").path, None), file_at("south")], message="move")
        await self.index.catch_up()
        self.remote.push([Change(file_at("south").path, None), file_at("north")], message="move back")
        await self.index.catch_up()

    async def report(self, *reports: Report) -> None:
        numbered = [Outgoing(self.reported + at, encode(each)) for at, each in enumerate(reports, 1)]
        self.reported += len(reports)
        await self.intake.take(NORTH, numbered, epoch="one", seen={})

    async def installed(self) -> Instance:
        revision = (await self.row()).revision
        return replace(an_instance(), deployment_id=ID, version=1, revision=revision, running_revision=revision)

    async def row(self) -> Deployment:
        async with self.store.read() as reader:
            row = await reader.deployment(ID)
        assert row is not None
        return row

    async def missed(self) -> set[str]:
        async with self.store.read() as reader:
            return {key[0] for key in await reader.instance_values(RESTATE, str)}

    @asynccontextmanager
    async def with_north(self, *answer: Report) -> AsyncIterator[list[Restate]]:
        """The site is connected, and reports this when it is asked."""
        asked: list[Restate] = []

        async def listen() -> None:
            async for call in self.calls.listen(NORTH):
                assert isinstance(call, Addressed) and isinstance(call.request, Restate)
                asked.append(call.request)
                await self.report(*answer)
                await self.queries.answered(NORTH, call.reply_to, {})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            yield asked
            tasks.cancel_scope.cancel()


async def test_a_deployment_that_comes_back_unchanged_is_shown_as_it_stands() -> None:
    """Its site sends nothing by itself: for it, nothing has happened."""
    central = Central()
    await central.begin()
    await central.move_there_and_back()
    before, instance = await central.row(), await central.installed()
    assert before.state is State.PENDING
    async with central.with_north(InstanceSnapshot(instance)) as asked:
        assert not await ask_again(central.store, central.queries)
        assert not await ask_again(central.store, central.queries), "and never again"
    assert asked == [Restate((ID,))]
    assert (await central.row()).state is State.INSTALLED
    async with central.store.read() as reader:
        assert [item.running_revision for item in await reader.instances([ID])] == [instance.running_revision]


async def test_what_ran_beside_the_first_of_a_copy_is_shown_when_that_one_goes() -> None:
    """What its site reported was refused while the first was there."""
    central = Central()
    central.remote.push([Change(marker_path(SOUTH), render_marker(SOUTH)), file_at("south")], message="first")
    await central.index.catch_up()
    await central.begin()
    assert (await central.row()).site == SOUTH
    central.remote.push([Change(file_at("south").path, None)], message="the copy stays")
    await central.index.catch_up()
    instance = await central.installed()
    step = Transition(
        ID, NodeId("one"), Incarnation(3), Trigger.CHANGED, Actor.SITE, "", AT, Generation(9), instance.revision, None
    )
    await central.report(step)
    row = await central.row()
    assert (row.site, row.state) == (NORTH, State.UPDATING)
    async with central.with_north(
        InstanceSnapshot(replace(instance, state=State.UPDATING, generation=step.generation))
    ):
        assert not await ask_again(central.store, central.queries)
    async with central.store.read() as reader:
        assert [item.running_revision for item in await reader.instances([ID])] == [instance.running_revision]


async def test_a_site_that_is_away_is_asked_when_it_is_back() -> None:
    central = Central()
    await central.begin()
    await central.move_there_and_back()
    assert await ask_again(central.store, central.queries)
    assert await central.missed() == {ID}
    async with central.with_north() as asked:
        assert not await ask_again(central.store, central.queries)
    assert len(asked) == 1


async def test_what_is_missed_while_the_site_answers_is_asked_again() -> None:
    central = Central()
    await central.begin()
    await central.move_there_and_back()
    async with central.with_north(PlanSetAside(ID, "busy", AT)):
        await central.store.write(lambda tx: note_missed(tx, {ID: "before"}))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_again, central.store, central.queries)
            await anyio.lowlevel.checkpoint()
            await central.store.write(lambda tx: note_missed(tx, {ID: "again"}))
        assert await central.missed() == {ID}


async def test_a_refused_step_has_its_site_asked_how_the_deployment_stands() -> None:
    central = Central()
    await central.begin()
    step = Transition(
        ID, NodeId("one"), Incarnation(3), Trigger.ROLLED_BACK, Actor.SITE, "", AT, Generation(9), None, None
    )
    await central.report(step)
    assert await central.missed() == {ID}


async def test_a_site_of_an_earlier_release_is_not_asked_before_it_is_upgraded() -> None:
    central = Central()
    await central.begin(UNSAID)
    await central.move_there_and_back()
    async with central.with_north() as asked:
        assert await ask_again(central.store, central.queries)
    assert not asked and await central.missed() == {ID}


async def test_nobody_is_asked_for_what_no_site_has_ever_reported() -> None:
    central = Central()
    await central.begin()
    central.remote.push([Change(file_at("north").path, None), file_at("south")], message="move")
    await central.index.catch_up()
    assert not await ask_again(central.store, central.queries), "south has never joined"
    assert not await central.missed()


def test_a_site_restates_instances_rollbacks_and_problems_of_what_it_is_asked_for() -> None:
    memory, other = SiteState(NORTH, Generation(1), Incarnation(1)), DeploymentId("other")
    mine = replace(an_instance(), deployment_id=ID)
    pin = Pin(ID, digest_of_bytes(b""), b"", Digest("sha256:" + "1" * 64), "too loud", "ada", AT)
    memory.instances.update({item.key: item for item in (mine, replace(mine, deployment_id=other))})
    memory.pins, memory.set_aside = {ID: pin}, {ID: "a fault"}
    assert restated(memory, [ID], AT) == [InstanceSnapshot(mine), Pinned(pin), PlanSetAside(ID, "a fault", AT)]
    assert restated(memory, [DeploymentId("gone")], AT) == [PlanSetAside(DeploymentId("gone"), None, AT)]
