"""A deployment that came and went between two looks of central is known all the same: its site tells of it."""

from collections.abc import Sequence

import pytest

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.instance import Transition
from homeport.core.model.report import Report, Synced
from homeport.fleet.index import Index
from homeport.fleet.intake import Intake
from homeport.ports import Change, Outgoing
from homeport.vocabulary import (
    Actor,
    Commit,
    DeploymentId,
    Generation,
    Happening,
    Incarnation,
    NodeId,
    SiteName,
    State,
)
from homeport.wire.reports import encode
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

HOME = SiteName("home")
PATH, TEXT = deployment_file()
KEY = DeploymentId(PATH.rpartition("/")[2].removesuffix(".yaml"))
MARKER = Change(marker_path(HOME), render_marker(HOME))


def step(happening: Happening, actor: Actor) -> Transition:
    at = MachineClock().now()
    return Transition(KEY, NodeId("one"), Incarnation(1), happening, actor, "so it is", at, Generation(1), None, None)


async def told(reports: Sequence[Report], remote: Remote, disk: Disk) -> None:
    clock = MachineClock()
    store = MemoryStore(disk)
    intake = Intake(store, Index(store, MemoryGit(remote, []), clock), clock)
    await intake.join(HOME, epoch="one", software_version="1")
    numbered = [Outgoing(number, encode(report)) for number, report in enumerate(reports, 1)]
    await intake.take(HOME, numbered, epoch="one", seen={})


async def test_what_came_and_went_is_recorded_from_its_beginning_to_its_end() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    came = remote.push([MARKER, Change(PATH, TEXT.encode())], message="deploy")
    gone = remote.push([Change(PATH, None)], message="delete")
    reports: list[Report] = [
        Synced(came, (KEY,)),
        step(Happening.SCHEDULED, Actor.SITE),
        step(Happening.HEALTHY, Actor.NODE),
        Synced(gone, ()),
        step(Happening.UNWANTED, Actor.SITE),
        step(Happening.REMOVED, Actor.NODE),
    ]
    await told(reports, remote, disk)
    row = disk.tables.deployments[KEY]
    assert (row.wanted, row.state, row.archived_at is not None) == (False, State.DELETED, True)
    assert [entry.happening for entry in disk.tables.history] == ["scheduled", "healthy", "unwanted", "removed"]
    assert not [event for event in disk.tables.events if "not true" in event.event.message]


async def test_a_commit_that_is_in_nobodys_history_makes_nothing_known() -> None:
    remote, disk = Remote(MachineClock().now), Disk()
    remote.push([MARKER], message="begin")
    await told([Synced(Commit("f" * 40), (KEY,)), step(Happening.SCHEDULED, Actor.SITE)], remote, disk)
    assert not disk.tables.deployments
