"""People go back at central and at a site while Git cannot be read: which of their requests counts depends on the
revision that Git is at, not on the order in which they arrive."""

import random
from itertools import permutations

import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.deployment import Pin, Revision, digest_of_bytes
from homeport.core.model.report import Pinned
from homeport.errors import Conflict, GitUnavailable
from homeport.fleet.central.deploy import GitWriter
from homeport.fleet.central.index import Index
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.fleet.central.rollback import roll_back, settle_pins
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.shared.snapshot import Snapshot, read_snapshot
from homeport.fleet.site.maintenance import RollbackRequest, roll_back_as, roll_back_to
from homeport.fleet.site.state import SiteState
from homeport.ports import Change, Outgoing, RollBack, TreeFile
from homeport.vocabulary import Commit, DeploymentId, Generation, Incarnation, SiteName
from homeport.wire.reports import encode
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import BEGINNING, MachineClock, SeededIds
from tests.simulation.people import ANN
from tests.simulation.store import Disk, MemoryStore
from tests.support.deployment_files import deployment_file

HOME = SiteName("home")
PATH, TEXT = deployment_file()
KEY = DeploymentId(PATH.rpartition("/")[2].removesuffix(".yaml"))
FILES = {version: TEXT.replace("1.0.0", version).encode() for version in ("1.0.0", "2.0.0", "3.0.0", "4.0.0")}
DIGESTS = {version: digest_of_bytes(content) for version, content in FILES.items()}
READ, UNREAD = Commit("a" * 40), Commit("b" * 40)


class Central:
    """With a deployment that was at 1.0.0 and is at 2.0.0, and a Git that can be cut off."""

    def __init__(self) -> None:
        self.clock, self.store, self.is_cut, self.reported = MachineClock(), MemoryStore(Disk()), False, 0
        self.remote = Remote(self.clock.now)
        git = MemoryGit(self.remote, [], travel=self._travel)
        index = Index(self.store, git, self.clock)
        calls = SiteMessages(InProcessBus())
        self.git_writer = GitWriter(self.store, git, index, calls, SeededIds(random.Random(0)))
        self.intake = ReportIntake(self.store, index, self.clock)

    async def _travel(self) -> None:
        if self.is_cut:
            raise GitUnavailable("The Git repository cannot be reached.")

    async def begin(self) -> None:
        await self.intake.join(HOME, epoch="one", software_version="1")
        self.remote.push([Change(marker_path(HOME), render_marker(HOME))], message="begin")
        for version in ("1.0.0", "2.0.0"):
            await self.push(version)

    async def push(self, version: str) -> None:
        self.remote.push([Change(PATH, FILES[version])], message=version)
        if not self.is_cut:
            await self.git_writer.index.catch_up()

    async def goes_back(self, to: str) -> None:
        done = await roll_back(
            KEY, DIGESTS[to], reason="too loud", caller=ANN, git_writer=self.git_writer, clock=self.clock
        )
        assert done.commit is None, "Git cannot be written"

    async def is_told(self, to: str, over: str) -> None:
        self.reported += 1
        pin = Pin(KEY, DIGESTS[to], FILES[to], DIGESTS[over], "too loud", "ada", BEGINNING)
        await self.intake.take(HOME, [Outgoing(self.reported, encode(Pinned(pin)))], epoch="one", seen={})

    async def settles(self) -> None:
        self.is_cut = False
        await settle_pins(self.git_writer, self.clock)
        async with self.store.read() as reader:
            assert not await reader.pins()


@pytest.mark.anyio
@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_what_a_site_says_of_an_older_revision_does_not_replace_what_central_was_asked(
    order: tuple[int, ...],
) -> None:
    central = Central()
    await central.begin()
    await central.push("3.0.0")
    central.is_cut = True
    requests = (
        lambda: central.goes_back("2.0.0"),
        lambda: central.is_told("1.0.0", over="2.0.0"),
        lambda: central.is_told("2.0.0", over="2.0.0"),
    )
    for number in order:
        await requests[number]()
    await central.settles()
    assert central.remote.tree[PATH] == FILES["2.0.0"]
    assert central.remote.commits[central.remote.order[-1]].message.startswith("roll back")


@pytest.mark.anyio
@pytest.mark.parametrize("is_central_first", [True, False])
async def test_what_a_site_says_of_a_revision_that_central_has_not_read_yet_counts(is_central_first: bool) -> None:
    central = Central()
    await central.begin()
    central.is_cut = True
    await central.push("3.0.0")
    if is_central_first:
        await central.goes_back("1.0.0")
    await central.is_told("2.0.0", over="3.0.0")
    if not is_central_first:
        await central.goes_back("1.0.0")
    await central.settles()
    assert central.remote.tree[PATH] == FILES["2.0.0"]


def snapshot(version: str, memory: SiteState) -> Snapshot:
    files = [TreeFile(marker_path(HOME), render_marker(HOME)), TreeFile(PATH, FILES[version])]
    return read_snapshot(HOME, READ, files, memory.files)


def site_at(version: str) -> SiteState:
    memory = SiteState(HOME, Generation(1), Incarnation(1))
    memory.adopt(snapshot(version, memory), ())
    return memory


def kept(*versions: str) -> list[Revision]:
    return [Revision(KEY, DIGESTS[version], version, FILES[version], READ, "ada", BEGINNING) for version in versions]


def asked(memory: SiteState, to: str, over: str, *, has_read: bool = False) -> Pin:
    call = RollBack(KEY, DIGESTS[to], "too loud", "ann", DIGESTS[over], READ if has_read else UNREAD)
    made = roll_back_as(RollbackRequest(call, kept("1.0.0", "2.0.0", "4.0.0"), READ, has_read))(memory, BEGINNING)
    assert made is not None and made.rolled_back is not None
    assert made.reports == (), "central has a record of its own"
    pin = made.rolled_back.pin
    memory.pins[KEY] = pin
    memory.remember({KEY: made.rolled_back.desired})
    return pin


def wanted(memory: SiteState) -> str:
    desired = memory.desired(KEY)
    assert desired is not None
    return desired.app_version


def read(memory: SiteState, version: str) -> None:
    found = snapshot(version, memory)
    memory.adopt(found, memory.unpinned_by(found, {KEY}, {KEY}))


@pytest.fixture
def memory() -> SiteState:
    """A site at 2.0.0 that central asked to go back from 3.0.0, which it has not read yet."""
    memory = site_at("2.0.0")
    assert asked(memory, "1.0.0", over="3.0.0").over == DIGESTS["3.0.0"]
    assert wanted(memory) == "1.0.0"
    return memory


@pytest.mark.parametrize("to", ["1.0.0", "2.0.0"])
def test_a_revision_that_central_went_back_from_is_not_applied_when_it_is_read_late(to: str) -> None:
    memory = site_at("2.0.0")
    asked(memory, to, over="3.0.0")
    assert wanted(memory) == to
    read(memory, "3.0.0")
    assert wanted(memory) == to
    read(memory, to)
    assert (wanted(memory), memory.pins) == (to, {}), "it has reached Git"


def test_a_newer_revision_than_the_one_that_central_went_back_from_is_applied(memory: SiteState) -> None:
    read(memory, "4.0.0")
    assert (wanted(memory), memory.pins) == ("4.0.0", {})


def test_a_revision_that_was_gone_back_from_is_applied_when_git_says_it_again(memory: SiteState) -> None:
    read(memory, "3.0.0")
    read(memory, "3.0.0")
    assert (wanted(memory), memory.pins) == ("3.0.0", {})


def test_who_goes_back_at_the_site_goes_back_from_what_central_has_read(memory: SiteState) -> None:
    made = roll_back_to(kept("2.0.0")[0], reason="too quiet", author="ada")(memory, BEGINNING)
    assert made is not None and made.rolled_back is not None
    assert made.rolled_back.pin.over == DIGESTS["3.0.0"]
    assert made.reports == (Pinned(made.rolled_back.pin),)


def test_a_site_that_has_read_more_than_central_keeps_what_is_newer() -> None:
    memory = site_at("4.0.0")
    with pytest.raises(Conflict, match="Git has a newer revision"):
        asked(memory, "1.0.0", over="2.0.0", has_read=True)
    assert asked(memory, "2.0.0", over="4.0.0", has_read=True).over == DIGESTS["4.0.0"]


def test_a_request_that_was_judged_at_another_commit_is_refused() -> None:
    memory = site_at("2.0.0")
    memory.applied = UNREAD
    with pytest.raises(Conflict, match="Git has a newer revision"):
        asked(memory, "1.0.0", over="2.0.0", has_read=True)
