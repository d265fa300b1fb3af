"""A change that is refused because history was rewritten has pushed nothing: it would bury what was lost."""

import random

import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.caller import INTERNAL
from homeport.fleet.central.deploy import FolderLost, GitWriter, delete, mark_site
from homeport.fleet.central.index import HistoryRewritten, Index
from homeport.fleet.central.labels import label_site
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.ports import Change
from homeport.vocabulary import SiteName
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock, SeededIds
from tests.simulation.store import Disk, MemoryStore
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

HOME, AWAY = SiteName("home"), SiteName("away")
PATH, TEXT = deployment_file()
LATER_PATH, LATER_TEXT = deployment_file(name="later")
NAME = PATH.rsplit("/", 1)[1].removesuffix(".yaml")


@pytest.fixture
def remote() -> Remote:
    return Remote(MachineClock().now)


@pytest.fixture
async def git_writer(remote: Remote) -> GitWriter:
    """Shows two commits."""
    clock, store, git = MachineClock(), MemoryStore(Disk()), MemoryGit(remote, [])
    git_writer = GitWriter(
        store, git, Index(store, git, clock), SiteMessages(InProcessBus()), SeededIds(random.Random(0))
    )
    remote.push([Change(marker_path(HOME), render_marker(HOME)), Change(PATH, TEXT.encode())], message="first")
    remote.push([Change(LATER_PATH, LATER_TEXT.encode())], message="second")
    await git_writer.index.catch_up()
    return git_writer


async def test_on_a_branch_that_was_set_back_nothing_is_pushed(git_writer: GitWriter, remote: Remote) -> None:
    remote.head = remote.order[0]
    with pytest.raises(HistoryRewritten, match="does not descend"):
        await delete(NAME, INTERNAL, git_writer)
    with pytest.raises(HistoryRewritten):
        await label_site(HOME, {"zone": "a"}, INTERNAL, git_writer)
    await mark_site(AWAY, git_writer, INTERNAL)
    assert remote.head == remote.order[0]


async def test_on_a_branch_that_is_gone_nothing_is_pushed(git_writer: GitWriter, remote: Remote) -> None:
    remote.head = None
    with pytest.raises(HistoryRewritten, match="the branch is gone"):
        await delete(NAME, INTERNAL, git_writer)
    assert remote.head is None


async def test_once_the_branch_is_back_changes_are_made_again(git_writer: GitWriter, remote: Remote) -> None:
    remote.head = remote.order[0]
    with pytest.raises(HistoryRewritten):
        await delete(NAME, INTERNAL, git_writer)
    remote.head = remote.order[1]
    _, commit = await delete(NAME, INTERNAL, git_writer)
    assert remote.head == commit


async def test_a_label_does_not_make_a_foreign_folder_real(git_writer: GitWriter, remote: Remote) -> None:
    foreign = Change(marker_path(HOME), render_marker(AWAY))
    remote.push([foreign, Change(PATH, None)], message="south became north")
    before = remote.head
    with pytest.raises(FolderLost, match="names another site"):
        await label_site(HOME, {"zone": "a"}, INTERNAL, git_writer)
    assert remote.head == before
