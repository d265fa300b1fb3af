"""Every adapter of leases lets one holder in at a time, ends what is not renewed, and fences what was lost. `two` are
the leases of two processes, with the store that they share."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from homeport.adapters.leases.inprocess import HeldLeases, InProcessLeases
from homeport.adapters.leases.postgresql import open_leases
from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.core.model.lease import Lease
from homeport.errors import LeaseLost
from homeport.fleet.shared.leases import FencedStore, holding, while_held
from homeport.ports import Leases, Store, Transaction
from tests.support.postgres import PostgresServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

Two = tuple[Leases, Leases, Store]


@pytest.fixture(params=["in process", "postgresql"])
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Two]:
    if request.param == "in process":
        held = HeldLeases()
        async with open_store(str(tmp_path / "store.db")) as store:
            yield InProcessLeases(SystemClock(), held), InProcessLeases(SystemClock(), held), store
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = await server.create_database()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.drop_database, name)
        store = await stack.enter_async_context(open_store(server.url(name)))
        leases = [await stack.enter_async_context(open_leases(server.url(name))) for _ in range(2)]
        yield leases[0], leases[1], store


async def taken(leases: Leases, name: str = "work", *, seconds: float = 60) -> Lease:
    lease = await leases.acquire(name, seconds=seconds)
    assert lease is not None
    return lease


async def test_one_holds_a_lease_and_others_wait_until_it_is_released(two: Two) -> None:
    here, there, _ = two
    lease = await taken(here)
    assert await there.acquire("work", seconds=60) is None
    assert await here.acquire("work", seconds=60) is None, "nor twice by the same"
    await taken(there, "other work")
    await here.release(lease)
    newer = await taken(there)
    assert newer.token > lease.token
    assert newer.holder != lease.holder


async def test_a_lease_that_is_not_renewed_ends_by_itself(two: Two) -> None:
    here, there, _ = two
    lease = await taken(here, seconds=0.05)
    newer = await eventually(lambda: there.acquire("work", seconds=60))
    assert not await here.renew(lease, seconds=60)
    await here.release(lease)
    assert await here.acquire("work", seconds=60) is None, "releasing what was lost takes nothing from the new holder"
    assert await there.renew(newer, seconds=60)


async def test_a_renewal_that_arrives_after_the_release_takes_nothing_back(two: Two) -> None:
    here, there, store = two
    lease = await taken(here)
    await here.release(lease)
    assert not await here.renew(lease, seconds=60)
    with pytest.raises(LeaseLost):
        await FencedStore(store, here, lease).write(lambda tx: tx.set_value("written", "too late"))
    newer = await taken(there)
    assert newer.token > lease.token


async def test_a_renewed_lease_goes_on_and_keeps_its_token(two: Two) -> None:
    here, there, _ = two
    lease = await taken(here, seconds=0.5)
    assert await here.renew(lease, seconds=60)
    await anyio.sleep(0.6)
    assert await there.acquire("work", seconds=60) is None


async def test_a_write_with_a_lost_lease_changes_nothing(two: Two) -> None:
    here, there, store = two
    lease = await taken(here, seconds=0.05)
    fenced = FencedStore(store, here, lease)
    await fenced.write(lambda tx: tx.set_value("written", "in time"))
    newer = await eventually(lambda: there.acquire("work", seconds=60))
    with pytest.raises(LeaseLost):
        await fenced.write(lambda tx: tx.set_value("written", "too late"))
    await FencedStore(store, there, newer).write(lambda tx: tx.set_value("also", "written"))
    async with fenced.read() as reader:
        assert (await reader.value("written"), await reader.value("also")) == ("in time", "written")


async def test_nobody_takes_a_lease_over_in_the_middle_of_a_fenced_write(two: Two) -> None:
    """The old holder's write is there before the new holder begins, so that the new one sees it."""
    here, there, store = two
    lease = await taken(here, seconds=0.05)
    checked, seen = anyio.Event(), []

    async def slowly(tx: Transaction) -> None:
        await tx.set_value("by", "the old holder")
        checked.set()
        await anyio.sleep(0.3)

    async def take_over() -> None:
        await checked.wait()
        await eventually(lambda: there.acquire("work", seconds=60))
        async with store.read() as reader:
            seen.append(await reader.value("by"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_over)
        await FencedStore(store, here, lease).write(slowly)
    assert seen in (["the old holder"], [None])
    if not isinstance(here, InProcessLeases):
        assert seen == ["the old holder"]


async def test_work_goes_to_the_next_holder_when_the_first_lets_go(two: Two) -> None:
    here, there, _ = two
    running: list[str] = []

    async def work(name: str) -> None:
        running.append(name)
        try:
            await anyio.sleep_forever()
        finally:
            running.remove(name)

    async with anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def run_first() -> None:
            with first:
                await while_held("work", here, lambda lease: work("here"), seconds=0.3)

        tasks.start_soon(run_first)
        await eventually(lambda: running == ["here"])
        tasks.start_soon(lambda: while_held("work", there, lambda lease: work("there"), seconds=0.3))
        await anyio.sleep(0.7)
        assert running == ["here"], "renewed, it outlives its seconds"
        first.cancel()
        await eventually(lambda: running == ["there"])
        tasks.cancel_scope.cancel()


async def test_work_is_cut_when_its_lease_is_lost(two: Two) -> None:
    here, there, _ = two
    with pytest.raises(LeaseLost):
        async with holding("work", here, seconds=0.3) as lease:
            await here.release(lease)
            await taken(there)
            with anyio.fail_after(60):
                await anyio.sleep_forever()


async def test_what_the_work_raises_comes_out_as_it_is(two: Two) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with holding("work", two[0], seconds=60):
            raise ValueError("mine")
    assert await two[1].acquire("work", seconds=60) is not None
