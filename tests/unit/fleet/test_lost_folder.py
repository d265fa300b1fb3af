"""A folder that has lost its marker is brought back by a person; central never turns it into an empty one."""

import random

import pytest

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.caller import INTERNAL
from homeport.fleet.calls import Calls
from homeport.fleet.deploy import Desk, FolderLost, check_folders, mark_site
from homeport.fleet.index import Index
from homeport.fleet.labels import label_site
from homeport.ports import Change
from homeport.vocabulary import SiteName
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock, SeededIds
from tests.simulation.store import Disk, MemoryStore
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

HOME, AWAY = SiteName("home"), SiteName("away")
PATH, TEXT = deployment_file()
MARKER = Change(marker_path(HOME), render_marker(HOME))


@pytest.fixture
def remote() -> Remote:
    return Remote(MachineClock().now)


@pytest.fixture
async def desk(remote: Remote) -> Desk:
    """Knows that something is wanted at home, whose folder is lost since."""
    clock, store, git = MachineClock(), MemoryStore(Disk()), MemoryGit(remote, [])
    desk = Desk(store, git, Index(store, git, clock), Calls(), SeededIds(random.Random(0)))
    remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    await desk.index.catch_up()
    remote.push([Change(PATH, None), Change(MARKER.path, None)], message="oops")
    return desk


async def test_a_site_that_joins_again_gets_no_new_marker(desk: Desk, remote: Remote) -> None:
    await mark_site(HOME, desk, INTERNAL)
    assert MARKER.path not in remote.tree


async def test_a_site_that_nothing_is_wanted_at_gets_its_marker(desk: Desk, remote: Remote) -> None:
    await mark_site(AWAY, desk, INTERNAL)
    assert marker_path(AWAY) in remote.tree


async def test_a_label_brings_no_marker_back(desk: Desk, remote: Remote) -> None:
    with pytest.raises(FolderLost, match=r"home/site\.yaml is gone from Git"):
        await label_site(HOME, {"ring": "inner"}, INTERNAL, desk)
    assert MARKER.path not in remote.tree


async def test_only_folders_in_which_something_is_wanted_count_as_lost(desk: Desk) -> None:
    await check_folders(desk, [AWAY])
    with pytest.raises(FolderLost):
        await check_folders(desk, [AWAY, HOME])
