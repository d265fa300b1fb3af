"""How long a node has been lost is a matter of time that passed, not of the time of day at its site."""

from datetime import timedelta

import pytest

from homeport.core.placement.choose import LOST_GRACE_SECONDS, is_written_off
from homeport.fleet.site.nodes.roster import NodeRoster
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.state import SiteState
from homeport.vocabulary import Generation, Incarnation, Liveness, SiteName
from homeport.wire.reports import encode
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import a_node

pytestmark = pytest.mark.anyio

HOME = SiteName("home")
LOST_SECONDS = 60.0


class Site:
    def __init__(self) -> None:
        self.clock = MachineClock()
        self.memory = SiteState(HOME, Generation(0), Incarnation(0))
        store = MemoryStore(Disk())
        queue = ReportQueue(self.memory, store, self.clock, encode)
        self.roster = NodeRoster(self.memory, store, self.clock, queue, stale_seconds=30.0, lost_seconds=LOST_SECONDS)

    async def look_after(self, seconds: float) -> None:
        self.clock.boot += seconds
        self.clock.offset += timedelta(seconds=seconds)
        await self.roster.look()

    @property
    def is_written_off(self) -> bool:
        (node,) = self.memory.nodes.values()
        assert node.liveness is Liveness.LOST
        return is_written_off(node, self.clock.now())


@pytest.mark.parametrize("days", [-400, 400])
async def test_a_clock_that_is_set_writes_off_no_node_and_keeps_none_for_ever(days: int) -> None:
    site = Site()
    await site.roster.register([a_node().info])
    await site.look_after(LOST_SECONDS + 1)
    site.clock.offset += timedelta(days=days)
    await site.look_after(1)
    assert not site.is_written_off
    await site.look_after(LOST_GRACE_SECONDS)
    assert site.is_written_off
