"""A site whose database cannot be written for a while has forgotten nothing when it can be written again."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from homeport.catalog.deployment import parse_deployment
from homeport.core.model.instance import Failure, Unhealthy
from homeport.core.model.order import Held, Order, Progress, Rejection
from homeport.errors import StorageFull
from homeport.fleet.shared.snapshot import Snapshot
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.state import load_state
from homeport.vocabulary import Code, Commit, DeploymentId, Generation, NodeId, OrderKind, State, Step
from homeport.wire.reports import encode
from tests.simulation.life import MachineClock
from tests.simulation.loop import run
from tests.simulation.store import Disk, MemoryReader, MemoryStore
from tests.support.builders import HOME, NOW, a_node, deployment_id
from tests.support.deployment_files import deployment_file

ONE, KEY = NodeId("one"), deployment_id()
GOOD, BAD = (
    parse_deployment(text.encode(), path, HOME)
    for path, text in (deployment_file(version=each, deployment_id=KEY) for each in ("1.0.0", "2.0.0"))
)
WENT_BACK = Held(
    KEY, Generation(9), OrderKind.APPLY, GOOD.revision, done=True, good_revision=GOOD.revision,
    rejection=Rejection(BAD.revision, Failure(Code.HEALTH_CHECK_FAILED, "it answered 500", "web")),
)  # fmt: skip


def content(version: str) -> bytes:
    return deployment_file(version=version, deployment_id=KEY)[1].encode()


class Site:
    """A site with a new database, whose disk may be full."""

    def __init__(self) -> None:
        self.writes_left = 1_000
        self.orders: list[Order] = []

    async def open(self) -> Conductor:
        disk, clock = Disk(), MachineClock()
        memory = await load_state(MemoryReader(disk.tables), HOME, clock.now(), clock.monotonic())
        conductor = Conductor(
            memory,
            MemoryStore(disk, insist_on_space=self._insist_on_space),
            clock,
            encode=encode,
            send=lambda _, order: self.orders.append(order),
            stale_seconds=15.0,
            lost_seconds=30.0,
        )
        conductor.older = self._older
        return conductor

    async def _older(self, _: DeploymentId) -> Sequence[bytes]:
        return [content("2.0.0"), content("1.0.0")]

    def _insist_on_space(self) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise StorageFull


NEWEST = Snapshot(Commit("c" * 40), {KEY: BAD}, {KEY: content("2.0.0")}, frozenset(), ())


@pytest.mark.parametrize("writes_left", [0, 1])
def test_what_a_node_holds_is_taken_over_when_the_disk_has_space_again(writes_left: int) -> None:
    """The commit is written, or not even that; what the node has gone back from stays gone back from."""

    async def story() -> None:
        site = Site()
        conductor = await site.open()
        await conductor.connected(a_node("one").info, [WENT_BACK])
        site.writes_left = writes_left
        with pytest.raises(StorageFull):
            await conductor.adopt(NEWEST, author="ann", touched=[KEY])
        site.writes_left = 1_000
        if conductor.memory.applied is None:
            await conductor.adopt(NEWEST, author="ann", touched=[KEY])
        else:
            await conductor.confirm()  # As the next look at Git does.
        await conductor.planner.plan()
        instance = conductor.memory.instances[KEY, ONE]
        assert (instance.state, instance.revision) == (State.INSTALLED, GOOD.revision)
        assert instance.rejected_revision == BAD.revision
        assert site.orders == [], "the node has nothing to do"

    run(story)


@pytest.mark.parametrize("known", [None, Unhealthy(NOW, "it answered 500")])
def test_a_journal_that_had_to_wait_takes_back_no_newer_health(known: Unhealthy | None) -> None:
    async def story() -> None:
        site = Site()
        conductor = await site.open()
        held = replace(WENT_BACK, unhealthy=known)
        await conductor.connected(a_node("one").info, [held])
        await conductor.adopt(NEWEST, author="ann", touched=[KEY])
        opposite = Unhealthy(NOW, "it does not answer") if known is None else None
        site.writes_left = 1  # For the node's new label, not for its health.
        with pytest.raises(StorageFull):
            await conductor.connected(a_node("one", labels={"room": "2"}).info, [replace(held, unhealthy=opposite)])
        site.writes_left = 1_000
        generation = conductor.memory.instances[KEY, ONE].generation
        healthy = known is None
        step, message = (Step.RESTORED, "healthy again") if known is None else (Step.DRIFTED, known.why)
        await conductor.take([(ONE, Progress(KEY, generation, step, "web", message, NOW, healthy=healthy))])
        await conductor.planner.plan()
        assert conductor.memory.instances[KEY, ONE].unhealthy == known

    run(story)
