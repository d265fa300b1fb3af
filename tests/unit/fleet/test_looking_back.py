"""A deployment that came and went between two looks of central is known all the same: its site tells of it."""

from collections.abc import Sequence

import anyio
import pytest

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.lifecycle.replay import replay
from homeport.core.model.deployment import Pin, digest_of_bytes
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.report import InstanceSnapshot, Pinned, Report, Resync, Synced
from homeport.fleet.central.index import Index, NotInHistory
from homeport.fleet.central.reports.intake import HISTORY_SECONDS, ReportIntake
from homeport.ports import Change, Outgoing
from homeport.vocabulary import (
    Actor,
    Commit,
    DeploymentId,
    Generation,
    Incarnation,
    NodeId,
    SiteName,
    State,
    Trigger,
)
from homeport.wire.reports import encode
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

HOME, AWAY = SiteName("home"), SiteName("away")
PATH, TEXT = deployment_file()
KEY = DeploymentId(PATH.rpartition("/")[2].removesuffix(".yaml"))
MARKER = Change(marker_path(HOME), render_marker(HOME))
AWAY_PATH, AWAY_TEXT = deployment_file(site=AWAY, deployment_id=KEY)
AWAY_MARKER = Change(marker_path(AWAY), render_marker(AWAY))


def step(trigger: Trigger, actor: Actor) -> Transition:
    at = MachineClock().now()
    return Transition(KEY, NodeId("one"), Incarnation(1), trigger, actor, "so it is", at, Generation(1), None, None)


async def told(
    reports: Sequence[Report], remote: Remote, disk: Disk, *, astray: dict[SiteName, float] | None = None
) -> None:
    clock = MachineClock()
    store = MemoryStore(disk)
    intake = ReportIntake(store, Index(store, MemoryGit(remote, []), clock), clock, astray=astray or {})
    await intake.join(HOME, epoch="one", software_version="1")
    numbered = [Outgoing(number, encode(report)) for number, report in enumerate(reports, 1)]
    await intake.take(HOME, numbered, epoch="one", seen={})


async def test_what_came_and_went_is_recorded_from_its_beginning_to_its_end() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    came = remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    gone = remote.push([Change(PATH, None)], message="delete")
    reports: list[Report] = [
        Synced(came, (KEY,)),
        step(Trigger.SCHEDULED, Actor.SITE),
        step(Trigger.HEALTHY, Actor.NODE),
        Synced(gone, ()),
        step(Trigger.UNWANTED, Actor.SITE),
        step(Trigger.REMOVED, Actor.NODE),
    ]
    await told(reports, remote, disk)
    row = disk.tables.deployments[KEY]
    assert (row.wanted, row.state, row.archived_at is not None) == (False, State.DELETED, True)
    assert [entry.trigger for entry in disk.tables.history] == ["scheduled", "healthy", "unwanted", "removed"]
    assert not [event for event in disk.tables.events if "not true" in event.event.message]


async def test_a_commit_that_is_in_nobodys_history_makes_nothing_known() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    remote.push([MARKER], message="begin")
    reports: list[Report] = [Synced(Commit("f" * 40), (KEY,)), step(Trigger.SCHEDULED, Actor.SITE)]
    await told(reports, remote, disk, astray={HOME: anyio.current_time() - HISTORY_SECONDS})
    assert not disk.tables.deployments
    assert [event for event in disk.tables.events if "not true" in event.event.message]


async def test_reports_wait_for_a_commit_that_was_lost_when_the_branch_was_rewritten() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    came = remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    tree = remote.tree
    remote.rewrite({})
    reports: list[Report] = [Synced(came, (KEY,)), step(Trigger.SCHEDULED, Actor.SITE)]
    with pytest.raises(NotInHistory, match=f"follows commit {came[:8]}, which is not in the history"):
        await told(reports, remote, disk)
    remote.join(came, tree)
    await told(reports, remote, disk)
    assert [entry.trigger for entry in disk.tables.history] == ["scheduled"]
    assert not [event for event in disk.tables.events if "not true" in event.event.message]


async def test_a_file_that_was_spoilt_before_central_looked_is_still_wanted() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    came = remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    remote.push([Change(PATH, b"id: [this is\n")], message="spoil")
    await told([Synced(came, (KEY,)), step(Trigger.SCHEDULED, Actor.SITE)], remote, disk)
    row = disk.tables.deployments[KEY]
    assert (row.wanted, row.archived_at) == (True, None)
    assert row.problem is not None and row.problem.startswith(PATH)


async def test_a_file_that_came_back_and_cannot_be_read_is_wanted_again() -> None:
    """Its site may never have seen that it was gone, and keeps the deployment as it is."""
    remote, disk = Remote(MachineClock().now), Disk()
    index = Index(MemoryStore(disk), MemoryGit(remote, []), MachineClock())
    wanted = []
    for content in (TEXT.encode(), None, b"id: [this is\n", None):
        remote.push([MARKER, Change(PATH, content)], message="change")
        await index.catch_up()
        wanted.append(disk.tables.deployments[KEY].wanted)
    assert wanted == [True, False, True, False]
    await told([Synced(remote.order[-1], ())], remote, disk)
    assert disk.tables.deployments[KEY].archived_at is not None
    remote.push([Change(PATH, b"id: [this is\n")], message="spoil")
    await index.catch_up()
    assert not disk.tables.deployments[KEY].wanted, "what is gone for good does not come back"


async def test_a_folder_that_was_lost_before_central_looked_keeps_what_was_in_it() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    came = remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    remote.push([Change(PATH, None), Change(MARKER.path, None)], message="oops")
    await told([Synced(came, (KEY,)), step(Trigger.SCHEDULED, Actor.SITE)], remote, disk)
    assert disk.tables.deployments[KEY].wanted


async def test_a_revision_that_came_and_went_may_be_gone_back_to() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    last = remote.push([Change(PATH, TEXT.replace("1.0.0", "1.1.0").encode())], message="change")
    revision, now = digest_of_bytes(TEXT.encode()), MachineClock().now()
    over = digest_of_bytes(TEXT.replace("1.0.0", "1.1.0").encode())
    pin = Pin(KEY, revision, TEXT.encode(), over, "too loud", "ada", now)
    await told([Synced(last, (KEY,)), Pinned(pin)], remote, disk)
    assert disk.tables.pins[KEY, over].revision == revision
    assert not [event for event in disk.tables.events if "not true" in event.event.message]


def restated(commit: Commit, wanted: tuple[DeploymentId, ...], instance: Instance) -> list[Report]:
    """What a site says to a central that has lost its database."""
    return [
        Resync("central no longer has the reports it acknowledged", (), (instance.key,)),
        Synced(commit, wanted),
        InstanceSnapshot(instance),
    ]


def after(*triggers: tuple[Trigger, Actor]) -> Instance:
    instance = None
    for trigger, actor in triggers:
        instance, _ = replay(instance, step(trigger, actor))
    assert instance is not None
    return instance


@pytest.fixture
async def installed() -> Instance:
    return after((Trigger.SCHEDULED, Actor.SITE), (Trigger.HEALTHY, Actor.NODE))


@pytest.fixture
async def leaving() -> Instance:
    return after((Trigger.SCHEDULED, Actor.SITE), (Trigger.UNWANTED, Actor.SITE))


async def test_a_central_without_memory_shows_what_runs_though_its_file_is_spoilt(installed: Instance) -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    spoilt = remote.push([Change(PATH, b"id: [this is\n")], message="spoil")
    await told(restated(spoilt, (KEY,), installed), remote, disk)
    row = disk.tables.deployments[KEY]
    assert (row.wanted, row.state, row.revision) == (True, State.INSTALLED, digest_of_bytes(TEXT.encode()))
    assert row.problem is not None and row.problem.startswith(PATH)
    assert disk.tables.instances[installed.key].state is State.INSTALLED


async def test_a_central_without_memory_shows_a_removal_that_is_under_way(leaving: Instance) -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    gone = remote.push([Change(PATH, None)], message="delete")
    reports = restated(gone, (), leaving)
    await told(reports, remote, disk)
    row = disk.tables.deployments[KEY]
    assert (row.wanted, row.state, row.archived_at) == (False, State.DELETING, None)
    await told([*reports, step(Trigger.REMOVED, Actor.NODE)], remote, disk)
    assert disk.tables.deployments[KEY].archived_at is not None
    assert not [event for event in disk.tables.events if "not true" in event.event.message]


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted since", "wanted there"])
@pytest.mark.parametrize("looked_before", [True, False])
async def test_a_central_without_memory_calls_nothing_untrue_that_was_moved_away(
    leaving: Instance, looked_before: bool, is_deleted: bool
) -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    remote.push([MARKER, AWAY_MARKER, Change(PATH, TEXT.encode())], message="deploy")
    moved = remote.push([Change(PATH, None), Change(AWAY_PATH, AWAY_TEXT.encode())], message="move")
    if looked_before:
        await Index(MemoryStore(disk), MemoryGit(remote, []), MachineClock()).follow(moved)
    if is_deleted:
        moved = remote.push([Change(AWAY_PATH, None)], message="delete")
    if looked_before:
        await Index(MemoryStore(disk), MemoryGit(remote, []), MachineClock()).catch_up()
        assert disk.tables.deployments[KEY].wanted is not is_deleted
    await told([*restated(moved, (), leaving), step(Trigger.REMOVED, Actor.NODE)], remote, disk)
    if looked_before or not is_deleted:
        assert disk.tables.deployments[KEY].site == AWAY
        assert not disk.tables.instances
    assert not [event for event in disk.tables.events if "not true" in event.event.message]


async def test_what_git_never_had_is_not_made_known_by_a_site_that_says_it_has_it(installed: Instance) -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    begun = remote.push([MARKER], message="begin")
    await told(restated(begun, (KEY,), installed), remote, disk)
    assert not disk.tables.deployments


@pytest.mark.parametrize("looked_before", [True, False], ids=["moved here and back", "deployed here and moved"])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted since", "wanted there"])
async def test_what_was_at_this_site_for_a_while_and_is_at_another_now_is_passed_over_and_not_called_untrue(
    looked_before: bool, is_deleted: bool
) -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    index = Index(MemoryStore(disk), MemoryGit(remote, []), MachineClock())
    at_home, not_at_home = Change(PATH, TEXT.encode()), Change(PATH, None)
    away, not_away = Change(AWAY_PATH, AWAY_TEXT.encode()), Change(AWAY_PATH, None)
    remote.push([MARKER, AWAY_MARKER, *([away] if looked_before else [])], message="begin")
    await index.catch_up()
    came = remote.push([at_home, *([not_away] if looked_before else [])], message="here")
    gone = remote.push([not_at_home, away], message="there")
    if is_deleted:
        await index.catch_up()
        gone = remote.push([not_away], message="delete")
    await index.catch_up()
    shown = disk.tables.deployments[KEY]
    assert (shown.site, shown.wanted) == (AWAY, not is_deleted)
    reports: list[Report] = [
        Synced(came, (KEY,)),
        step(Trigger.SCHEDULED, Actor.SITE),
        step(Trigger.HEALTHY, Actor.NODE),
        Synced(gone, ()),
        step(Trigger.UNWANTED, Actor.SITE),
        step(Trigger.REMOVED, Actor.NODE),
    ]
    await told(reports, remote, disk)
    assert disk.tables.deployments[KEY] == shown
    assert not disk.tables.history
    assert not [event for event in disk.tables.events if "not true" in event.event.message]


@pytest.mark.parametrize("is_resync", [False, True])
async def test_what_was_moved_here_and_deleted_between_two_looks_is_followed_to_its_end_here(is_resync: bool) -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    index = Index(MemoryStore(disk), MemoryGit(remote, []), MachineClock())
    remote.push([MARKER, AWAY_MARKER, Change(AWAY_PATH, AWAY_TEXT.encode())], message="begin")
    await index.catch_up()
    moved = remote.push([Change(PATH, TEXT.encode()), Change(AWAY_PATH, None)], message="move")
    gone = remote.push([Change(PATH, None)], message="delete")
    await index.catch_up()
    assert disk.tables.deployments[KEY].site == AWAY
    steps: list[Report] = [step(Trigger.SCHEDULED, Actor.SITE), step(Trigger.HEALTHY, Actor.NODE), Synced(gone, ())]
    begun: list[Report] = [Synced(moved, (KEY,)), *steps, step(Trigger.UNWANTED, Actor.SITE)]
    leaving = after((Trigger.SCHEDULED, Actor.SITE), (Trigger.UNWANTED, Actor.SITE))
    reports: list[Report] = restated(gone, (), leaving) if is_resync else [*begun]
    await told([*reports, step(Trigger.REMOVED, Actor.NODE)], remote, disk)
    row = disk.tables.deployments[KEY]
    assert (row.site, row.wanted, row.state, row.archived_at is not None) == (HOME, False, State.DELETED, True)
    triggers = ["restated"] if is_resync else ["scheduled", "healthy", "unwanted"]
    assert [entry.trigger for entry in disk.tables.history] == [*triggers, "removed"]


async def test_what_two_sites_have_at_once_is_believed_of_the_first_alone() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    remote.push([MARKER, AWAY_MARKER, Change(AWAY_PATH, AWAY_TEXT.encode())], message="deploy")
    await Index(MemoryStore(disk), MemoryGit(remote, []), MachineClock()).catch_up()
    copied = remote.push([Change(PATH, TEXT.encode())], message="copy")
    await told([Synced(copied, (KEY,)), step(Trigger.SCHEDULED, Actor.SITE)], remote, disk)
    assert disk.tables.deployments[KEY].site == AWAY
    assert [event for event in disk.tables.events if "not true" in event.event.message]
