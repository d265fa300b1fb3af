"""Reports of a start that has been replaced: their numbers may be those of other reports by now."""

import pytest

from homeport.errors import Conflict
from homeport.fleet.central.index import Index
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.ports import Lineage, Outgoing
from homeport.wire.reports import encode
from tests.simulation.git import MemoryGit, Remote
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import HOME
from tests.support.running_central import node_changed

pytestmark = pytest.mark.anyio


async def test_what_a_replaced_start_sent_is_refused_however_late_it_arrives() -> None:
    store, clock = MemoryStore(Disk()), MachineClock()
    intake = ReportIntake(store, Index(store, MemoryGit(Remote(clock.now), []), clock), clock)

    async def join(*starts: str) -> int:
        lineage = Lineage(starts, given=1)
        return (await intake.join(HOME, epoch="one", software_version="1", lineage=lineage)).sequence

    async def report(sequence: int, node: str, start: str) -> int:
        body = encode(node_changed(node, site=HOME))
        return await intake.take(HOME, [Outgoing(sequence, body)], epoch="one", seen={}, start=start)

    await join("first")
    assert await report(1, "n1", "first") == 1
    # Its database is put back from a copy in which the second report had not been written.
    assert await join("first", "second") == 1
    with pytest.raises(Conflict, match="restarted"):
        await report(2, "n2", "first")
    assert await report(2, "n3", "second") == 2
    assert await report(3, "n4", "") == 3, "a site of an earlier release names no start"
    async with store.read() as reader:
        assert sorted(node.id for node in await reader.nodes(HOME)) == ["n1", "n3", "n4"]
