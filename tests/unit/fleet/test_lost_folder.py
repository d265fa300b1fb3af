"""A folder that has lost its marker is brought back by a person; central never turns it into an empty one."""

import random

import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.caller import INTERNAL
from homeport.fleet.central.deploy import FolderLost, GitWriter, check_folders, mark_site
from homeport.fleet.central.index import Index
from homeport.fleet.central.labels import label_site
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.margo.wfm.contacts import Contacts
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


def writer_of(remote: Remote) -> GitWriter:
    """One with a new database."""
    clock, store, git = MachineClock(), MemoryStore(Disk()), MemoryGit(remote, [])
    return GitWriter(store, git, Index(store, git, clock), SiteMessages(InProcessBus()), SeededIds(random.Random(0)))


@pytest.fixture
async def git_writer(remote: Remote) -> GitWriter:
    """Knows that something is wanted at home, whose folder is lost since."""
    git_writer = writer_of(remote)
    remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    await git_writer.index.catch_up()
    remote.push([Change(PATH, None), Change(MARKER.path, None)], message="oops")
    return git_writer


async def test_a_site_that_joins_again_gets_no_new_marker(git_writer: GitWriter, remote: Remote) -> None:
    await mark_site(HOME, git_writer, INTERNAL)
    assert MARKER.path not in remote.tree


async def test_a_site_that_nothing_is_wanted_at_gets_its_marker(git_writer: GitWriter, remote: Remote) -> None:
    await mark_site(AWAY, git_writer, INTERNAL)
    assert marker_path(AWAY) in remote.tree


async def test_many_new_clients_get_their_markers_in_one_commit_and_a_lost_folder_is_not_in_their_way(
    git_writer: GitWriter, remote: Remote
) -> None:
    await git_writer.store.write(lambda tx: tx.remove_site(HOME))
    clock = MachineClock()
    names = [AWAY, SiteName("b"), SiteName("c")]
    before = len(remote.order)
    for seen, commits in ((names, 1), ([HOME, SiteName("d"), SiteName("e")], 2)):
        clients = Contacts(git_writer.store, clock, lambda: git_writer)
        for site in seen:
            clients.seen(site)
        await clients.flush()
        assert len(remote.order) == before + commits
        before = len(remote.order)
    assert all(marker_path(SiteName(name)) in remote.tree for name in (*names, "d", "e"))
    assert MARKER.path not in remote.tree


async def test_a_label_brings_no_marker_back(git_writer: GitWriter, remote: Remote) -> None:
    with pytest.raises(FolderLost, match=r"home/site\.yaml is gone from Git"):
        await label_site(HOME, {"ring": "inner"}, INTERNAL, git_writer)
    assert MARKER.path not in remote.tree


async def test_only_folders_in_which_something_is_wanted_count_as_lost(git_writer: GitWriter) -> None:
    head = await git_writer.git.fetch()
    await check_folders(git_writer, head, [AWAY])
    with pytest.raises(FolderLost):
        await check_folders(git_writer, head, [AWAY, HOME])


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_folder_that_was_lost_before_central_looked_is_lost_all_the_same(
    is_replaced: bool, remote: Remote
) -> None:
    """Central has a new database, or was away while a person pushed."""
    remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    remote.push([Change(PATH, None), Change(MARKER.path, None)], message="oops")
    if is_replaced:
        remote.push([Change(MARKER.path, render_marker(AWAY))], message="and another's marker")
    await mark_site(HOME, writer_of(remote), INTERNAL)
    assert remote.tree.get(MARKER.path) == (render_marker(AWAY) if is_replaced else None)


async def test_a_folder_that_was_emptied_before_its_marker_went_is_marked_again(remote: Remote) -> None:
    remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    remote.push([Change(PATH, None)], message="delete")
    remote.push([Change(MARKER.path, None)], message="remove the site")
    await mark_site(HOME, writer_of(remote), INTERNAL)
    assert MARKER.path in remote.tree
