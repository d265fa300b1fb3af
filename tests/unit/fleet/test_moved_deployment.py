"""A deployment file that is moved to another site's folder is that site's from then on, at central too."""

from dataclasses import replace
from random import Random

import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.deployment import Pin, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Transition
from homeport.core.model.report import Pinned, PlanSetAside, Report
from homeport.errors import Conflict
from homeport.fleet.central.deploy import GitWriter
from homeport.fleet.central.index import Index
from homeport.fleet.central.indexing.former_sites import moved_from
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.fleet.central.rollback import choose
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.ports import Change, Outgoing
from homeport.vocabulary import Actor, DeploymentId, Generation, Incarnation, NodeId, SiteName, State, Trigger
from homeport.wire.reports import encode
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock, SeededIds
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import an_instance
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

ID = DeploymentId("c0ffee00-5eed-4000-8000-00decade0000")
NORTH, SOUTH, EAST = SiteName("north"), SiteName("south"), SiteName("east")


def file_at(site: str) -> Change:
    path, text = deployment_file(site=site, deployment_id=ID)
    return Change(path, text.encode())


@pytest.fixture
async def remote() -> Remote:
    remote = Remote(MachineClock().now)
    markers = [Change(marker_path(site), render_marker(site)) for site in (NORTH, SOUTH, EAST)]
    remote.push([*markers, file_at("north")], message="deploy")
    return remote


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(Disk())


@pytest.fixture
async def index(remote: Remote, store: MemoryStore) -> Index:
    """Shows the deployment at north, where it runs."""
    index = Index(store, MemoryGit(remote, []), MachineClock())
    await index.catch_up()
    await store.write(lambda tx: tx.put_instances([replace(an_instance(), deployment_id=ID, version=1)]))
    return index


async def row_of(store: MemoryStore) -> Deployment:
    async with store.read() as reader:
        row = await reader.deployment(ID)
    assert row is not None
    return row


async def test_it_begins_anew_at_the_other_site(index: Index, remote: Remote, store: MemoryStore) -> None:
    remote.push([Change(file_at("north").path, None), file_at("south")], message="move")
    await index.catch_up()
    row = await row_of(store)
    assert (row.site, row.wanted, row.state) == (SOUTH, True, State.PENDING)
    async with store.read() as reader:
        assert not await reader.instances([ID])
        assert await reader.value(moved_from(ID)) == f"{SOUTH} {NORTH}"
        messages = [event.event.message for event in await reader.events(after=0, limit=50)]
    assert any("moved from north to south" in message for message in messages)


@pytest.mark.parametrize("way", [(SOUTH,), (SOUTH, EAST), (SOUTH, EAST, SOUTH)])
async def test_what_a_former_site_tells_late_is_passed_over_and_is_not_called_untrue(
    way: tuple[SiteName, ...], index: Index, remote: Remote, store: MemoryStore
) -> None:
    """That site may have been offline all the time: it removed it, and somebody had gone back there before."""
    before, clock = NORTH, MachineClock()
    for site in way:
        remote.push([Change(file_at(before).path, None), file_at(site)], message="move")
        await index.catch_up()
        before = site
    there, now = await row_of(store), clock.now()
    content = file_at("north").content
    assert content is not None
    pin = Pin(ID, digest_of_bytes(content), content, digest_of_bytes(b""), "too loud", "ada", now)
    step = Transition(
        ID, NodeId("one"), Incarnation(1), Trigger.UNWANTED, Actor.SITE, "gone", now, Generation(2), None, None
    )
    late: list[Report] = [step, Pinned(pin), PlanSetAside(ID, "it was late", now)]
    intake = ReportIntake(store, index, clock, astray={})
    await intake.join(NORTH, epoch="one", software_version="1")
    await intake.take(NORTH, [Outgoing(at, encode(each)) for at, each in enumerate(late, 1)], epoch="one", seen={})
    assert await row_of(store) == there
    async with store.read() as reader:
        assert not await reader.pins()
        messages = [event.event.message for event in await reader.events(after=0, limit=50)]
    assert not [message for message in messages if "not true" in message]


@pytest.mark.parametrize(
    ("trigger", "actor", "state"),
    [
        (Trigger.HEALTHY, Actor.NODE, State.INSTALLED),
        (Trigger.GAVE_UP, Actor.SITE, State.FAILED),
        (Trigger.CHANGED, Actor.SITE, State.UPDATING),
        (Trigger.REMOVED, Actor.NODE, State.PENDING),
    ],
)
async def test_what_has_come_back_again_is_followed_from_the_first_step_that_is_heard(
    trigger: Trigger, actor: Actor, state: State, index: Index, remote: Remote, store: MemoryStore
) -> None:
    """The steps before it were passed over while the deployment was another site's."""
    remote.push([Change(file_at("north").path, None), file_at("south")], message="move")
    await index.catch_up()
    remote.push([Change(file_at("south").path, None), file_at("north")], message="move back")
    await index.catch_up()
    intake, clock = ReportIntake(store, index, MachineClock(), astray={}), MachineClock()
    steps = [
        Transition(ID, NodeId("one"), Incarnation(1), each, by, "", clock.now(), Generation(2), None, None)
        for each, by in ((trigger, actor), (Trigger.SCHEDULED, Actor.SITE))
    ]
    await intake.join(NORTH, epoch="one", software_version="1")
    await intake.take(NORTH, [Outgoing(1, encode(steps[0]))], epoch="one", seen={})
    assert (await row_of(store)).state is state
    async with store.read() as reader:
        messages = [event.event.message for event in await reader.events(after=0, limit=50)]
    assert not [message for message in messages if "means nothing" in message]
    await intake.take(NORTH, [Outgoing(2, encode(steps[1]))], epoch="one", seen={})
    assert (await row_of(store)).state is state, "from then on the table decides again"


async def test_what_its_former_site_had_is_not_offered_for_going_back(
    index: Index, remote: Remote, store: MemoryStore
) -> None:
    """Its content names the former site, and would be refused in the folder of this one."""
    git_writer = GitWriter(store, MemoryGit(remote, []), index, SiteMessages(InProcessBus()), SeededIds(Random(0)))
    remote.push([Change(file_at("north").path, None), file_at("south")], message="move")
    await index.catch_up()
    async with store.read() as reader:
        assert [each.revision for each in await reader.revisions(ID)] == [(await row_of(store)).revision]
    with pytest.raises(Conflict, match="nothing to go back to"):
        await choose(ID, None, git_writer)


async def test_of_a_copy_the_first_stays_until_its_file_is_removed(
    index: Index, remote: Remote, store: MemoryStore
) -> None:
    remote.push([file_at("south")], message="copy")
    await index.catch_up()
    assert (await row_of(store)).site == NORTH
    remote.push([Change(file_at("north").path, None)], message="remove the first")
    await index.catch_up()
    row = await row_of(store)
    assert (row.site, row.wanted) == (SOUTH, True)


async def test_moved_without_a_change_it_is_a_problem_of_the_new_site(
    index: Index, remote: Remote, store: MemoryStore
) -> None:
    verbatim = Change(file_at("south").path, file_at("north").content)
    remote.push([Change(file_at("north").path, None), verbatim], message="move")
    await index.catch_up()
    row = await row_of(store)
    assert (row.site, row.wanted) == (NORTH, False)
    async with store.read() as reader:
        messages = [event.event.message for event in await reader.events(after=0, limit=50)]
    assert any("deviceId" in message for message in messages)
