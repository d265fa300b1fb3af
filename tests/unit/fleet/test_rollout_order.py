"""Of several rollouts of one name the newest counts, whatever became of the clock."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.leases.inprocess import InProcessLeases
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.central.capabilities import COMMIT_READERS
from homeport.core.model.caller import INTERNAL
from homeport.fleet.central.apps import AppQuery
from homeport.fleet.central.index import Index
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.resolve import DeployRequest, DeployTarget
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.central.sites.tunnels import SiteTunnels
from homeport.ports import Change
from homeport.rollouts.rows import rollout_of
from homeport.rollouts.start import RolloutRequest, start_rollout
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
    bus, ids = InProcessBus(), SeededIds(random.Random(0))
    calls = SiteMessages(bus)
    central = CentralPlatform(
        clock=clock,
        ids=ids,
        store=store,
        git=git,
        index=Index(store, git, clock, readers=COMMIT_READERS),
        bus=bus,
        leases=InProcessLeases(clock),
        calls=calls,
        questions=SiteQueries(calls, ids, bus),
        tunnels=SiteTunnels(bus),
        tracer=None,
    )
    remote.push([Change(marker_path(HOME), render_marker(HOME))], message="join")
    await central.index.catch_up()
    begun = []
    for version in ("1.0.0", "1.0.1"):
        request = RolloutRequest(DeployRequest((DeployTarget(HOME),), app=AppQuery(CATEGORY, APP, version)))
        begun.append((await start_rollout(request, INTERNAL, central)).rollout_id)
        clock.offset -= timedelta(days=1)
    first, second = (rollout_of(disk.tables.rollouts[each]) for each in begun)
    assert second.intent.created_at > first.intent.created_at
