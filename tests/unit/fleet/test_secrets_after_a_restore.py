"""A version of a secret is never given out twice, also not by a central whose database is an older copy or was lost:
a site that knows the number would keep the value that it has."""

from datetime import timedelta

import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.core.model.caller import INTERNAL
from homeport.core.model.event import Site
from homeport.fleet.central.secrets import Secrets
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.vocabulary import SiteName
from tests.simulation.life import MachineClock
from tests.simulation.roles import PlainVault
from tests.simulation.store import Disk, MemoryStore, Tables

pytestmark = pytest.mark.anyio

HOME = SiteName("home")


class Central:
    def __init__(self) -> None:
        self.clock = MachineClock()
        self.disk = Disk()
        self.store = MemoryStore(self.disk)
        self.secrets = Secrets(self.store, PlainVault(), self.clock, SiteMessages(InProcessBus()))

    async def set(self, value: str) -> int:
        """A while after whatever was before."""
        self.clock.offset += timedelta(minutes=1)
        site = Site(HOME, self.clock.now(), None, None)
        await self.store.write(lambda tx: tx.put_site(site))
        return (await self.secrets.set(HOME, "db", value, INTERNAL)).version


async def test_a_site_is_sent_what_is_set_after_an_older_copy_was_put_back() -> None:
    central = Central()
    await central.set("one")
    copy = central.disk.tables
    known = {"db": await central.set("two")}

    central.disk.tables = copy
    await central.set("three")

    there = await central.secrets.for_site(HOME, known=known)
    assert there.changed["db"].value == "three"


async def test_a_site_is_sent_what_is_set_after_everything_was_lost() -> None:
    central = Central()
    known = {"db": await central.set("one")}

    central.disk.tables = Tables()
    await central.set("two")

    there = await central.secrets.for_site(HOME, known=known)
    assert there.changed["db"].value == "two"


async def test_a_clock_that_was_set_back_repeats_no_version() -> None:
    central = Central()
    first = await central.set("one")
    central.clock.offset -= timedelta(days=1)
    assert await central.set("two") > first
