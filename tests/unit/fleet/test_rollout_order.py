"""Of several rollouts of one name the newest counts, whatever became of the clock."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.caller import INTERNAL
from homeport.fleet.apps import AppQuery
from homeport.fleet.calls import Calls
from homeport.fleet.deploy import Desk
from homeport.fleet.index import Index
from homeport.fleet.overview import Watchfulness
from homeport.fleet.resolve import DeployRequest, Target
from homeport.fleet.rollout_rows import rollout_of
from homeport.fleet.rollouts import Office, RolloutRequest, start_rollout
from homeport.ports import Change
from homeport.vocabulary import SiteName
from tests.simulation.catalog import APP, CATEGORY, catalog
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock, SeededIds
from tests.simulation.store import Disk, MemoryStore

pytestmark = pytest.mark.anyio

HOME = SiteName("home")


async def test_a_rollout_begun_after_the_clock_was_set_back_is_the_newest_all_the_same() -> None:
    clock, disk = MachineClock(), Disk()
    remote, store = Remote(clock.now), MemoryStore(disk)
    disk.tables = replace(disk.tables, apps=catalog(random.Random(0)))
    git = MemoryGit(remote, [])
    desk = Desk(store, git, Index(store, git, clock), Calls(), SeededIds(random.Random(0)))
    office = Office(desk, clock, Watchfulness())
    remote.push([Change(marker_path(HOME), render_marker(HOME))], message="join")
    await desk.index.catch_up()
    begun = []
    for version in ("1.0.0", "1.0.1"):
        request = RolloutRequest(DeployRequest((Target(HOME),), app=AppQuery(CATEGORY, APP, version)))
        begun.append((await start_rollout(request, INTERNAL, office)).rollout_id)
        clock.offset -= timedelta(days=1)
    first, second = (rollout_of(disk.tables.rollouts[each]) for each in begun)
    assert second.intent.created_at > first.intent.created_at
