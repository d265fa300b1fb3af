"""A deployment file that is moved to another site's folder is that site's from then on, at central too."""

from dataclasses import replace

import pytest

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.event import Deployment
from homeport.fleet.central.index import Index, moved_from
from homeport.ports import Change
from homeport.vocabulary import DeploymentId, SiteName, State
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import an_instance
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

ID = DeploymentId("c0ffee00-5eed-4000-8000-00decade0000")
NORTH, SOUTH = SiteName("north"), SiteName("south")


def file_at(site: str) -> Change:
    path, text = deployment_file(site=site, deployment_id=ID)
    return Change(path, text.encode())


@pytest.fixture
async def remote() -> Remote:
    remote = Remote(MachineClock().now)
    markers = [Change(marker_path(site), render_marker(site)) for site in (NORTH, SOUTH)]
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
        assert await reader.value(moved_from(ID)) == NORTH
        messages = [event.event.message for event in await reader.events(after=0, limit=50)]
    assert any("moved from north to south" in message for message in messages)


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
