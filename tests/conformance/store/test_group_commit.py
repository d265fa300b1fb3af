"""Many writers share commits, and none can spoil another's."""

import logging
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from homeport.adapters.store.open import open_store
from homeport.errors import Conflict, Refused, TransientError
from homeport.ports import Store, Transaction
from homeport.vocabulary import DeploymentId
from tests.conformance.store import records

pytestmark = pytest.mark.anyio

Work = Callable[[Transaction], Awaitable[int]]


class Boom(Exception):
    pass


def adds(number: int, *, fails: bool = False) -> Work:
    """Writes to every kind of table, so that a failure has something of each to take back."""

    async def work(tx: Transaction) -> int:
        await tx.append_events([records.event(str(number))])
        await tx.enqueue([{"n": number}])
        await tx.set_value(f"value-{number}", "set")
        await tx.append_history([records.entry(reason=str(number))])
        if number % 3 == 0:
            # Reading what was appended writes it out in the middle of the batch.
            assert (await tx.events(after=0, limit=1000))[-1].event.message == str(number)
            assert (await tx.outbox(limit=1000))[-1].body == {"n": number}
            assert (await tx.history(DeploymentId("d-1")))[-1].reason == str(number)
            assert await tx.outbox_size() == (await tx.outbox(limit=1000))[-1].sequence
            assert (await tx.events(after=0, limit=1000))[-1].id == await tx.last_event_id()
        if fails:
            raise Boom(str(number))
        return number

    return work


async def test_a_work_returns_its_result_once_it_is_durable(store: Store) -> None:
    assert await store.write(adds(1)) == 1
    async with store.read() as reader:
        assert await reader.value("value-1") == "set"


async def test_a_failing_work_is_taken_back_alone(store: Store) -> None:
    failed: list[int] = []

    async def write(number: int) -> None:
        try:
            assert await store.write(adds(number, fails=number % 2 == 0)) == number
        except Boom as error:
            assert str(error) == str(number)
            failed.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(write, number)
    assert sorted(failed) == list(range(0, 60, 2))
    async with store.read() as reader:
        events = await reader.events(after=0, limit=1000)
        assert [event.id for event in events] == list(range(1, 31))
        assert sorted(int(event.event.message) for event in events) == list(range(1, 60, 2))
        outbox = await reader.outbox(limit=1000)
        assert [item.sequence for item in outbox] == list(range(1, 31))
        assert [item.body["n"] for item in outbox] == [int(event.event.message) for event in events]
        assert [entry.reason for entry in await reader.history(DeploymentId("d-1"))] == [
            event.event.message for event in events
        ]
        assert [await reader.value(f"value-{number}") for number in range(4)] == [None, "set", None, "set"]


async def test_a_conflict_inside_a_batch_leaves_the_others_alone(store: Store) -> None:
    async def conflict() -> None:
        with pytest.raises(Conflict):
            await store.write(lambda tx: tx.put_instances([records.instance("d-x"), records.instance(version=5)]))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(store.write, adds(number))
            tasks.start_soon(conflict)
    async with store.read() as reader:
        assert await reader.outbox_size() == 10
        assert await reader.instances() == []


async def test_a_reader_that_follows_the_log_misses_nothing_of_200_writers(store: Store) -> None:
    seen: list[int] = []
    messages: set[str] = set()

    async def follow() -> None:
        last = 0
        while len(seen) < 600:
            await store.wait_for_event(last)
            async with store.read() as reader:
                for event in await reader.events(after=last, limit=50):
                    seen.append(event.id)
                    messages.add(event.event.message)
            last = seen[-1]

    async def write(number: int) -> None:
        for part in range(3):
            event = records.event(f"{number}.{part}")
            await store.write(lambda tx, event=event: tx.append_events([event]))  # type: ignore[misc]

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            for number in range(200):
                tasks.start_soon(write, number)
    assert seen == list(range(1, 601))
    assert len(messages) == 600


async def test_a_work_sees_what_it_and_others_before_it_wrote(store: Store) -> None:
    async def count(tx: Transaction) -> int:
        number = int(await tx.value("count") or 0) + 1
        await tx.set_value("count", str(number))
        assert await tx.value("count") == str(number)
        return number

    results: list[int] = []

    async def add() -> None:
        results.append(await store.write(count))

    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(add)
    assert results == list(range(1, 41))


async def test_a_reader_sees_one_moment_throughout(store: Store) -> None:
    await store.write(lambda tx: tx.set_value("a", "old"))
    async with store.read() as reader:
        assert await reader.value("a") == "old"
        await store.write(lambda tx: tx.set_value("a", "new"))
        assert await reader.value("a") == "old"
    async with store.read() as reader:
        assert await reader.value("a") == "new"


async def test_a_cancelled_caller_does_not_disturb_the_others(store: Store) -> None:
    done: list[int] = []

    async def write(number: int) -> None:
        done.append(await store.write(adds(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(write, number)
            with anyio.CancelScope() as scope:
                scope.deadline = anyio.current_time() + 0.0005 * number
                await store.write(adds(1000 + number))
    assert sorted(done) == list(range(30))
    async with store.read() as reader:
        sequences = [item.sequence for item in await reader.outbox(limit=1000)]
        kept = {item.body["n"] for item in await reader.outbox(limit=1000)}
    assert set(range(30)) <= kept
    assert sequences == list(range(1, len(sequences) + 1))


async def test_a_cancelled_reader_leaves_the_store_usable(store: Store) -> None:
    await store.write(lambda tx: tx.put_instances([records.instance(f"d-{number}") for number in range(2000)]))
    for number in range(12):
        with anyio.move_on_after(0.001 * number):
            async with store.read() as reader:
                await reader.instances()
    async with store.read() as reader:
        assert len(await reader.instances()) == 2000


async def test_waiting_for_an_event_ends_at_the_commit_that_brings_it(store: Store) -> None:
    await store.write(lambda tx: tx.append_events([records.event()]))
    with anyio.fail_after(60):
        await store.wait_for_event(0)
    woken = anyio.Event()

    async def wait() -> None:
        await store.wait_for_event(1)
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await store.write(lambda tx: tx.set_value("no", "event"))
        await anyio.wait_all_tasks_blocked()
        assert not woken.is_set()
        await store.write(lambda tx: tx.append_events([records.event()]))
        with anyio.fail_after(60):
            await woken.wait()


async def test_back_pressure_holds_callers_and_loses_none(url: str) -> None:
    async with open_store(url, queue_max=2, batch_max=3) as store, anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(store.write, adds(number))
    async with open_store(url) as store, store.read() as reader:
        assert await reader.outbox_size() == 40


async def test_a_work_that_never_ends_fails_its_commit_and_the_store_goes_on(url: str) -> None:
    async def sleep(tx: Transaction) -> None:
        await tx.set_value("slept", "yes")
        await anyio.sleep(60)

    async with open_store(url, limit_seconds=1.5) as store:
        with pytest.raises(TransientError, match="did not finish within"):
            await store.write(sleep)
        assert await store.write(adds(1)) == 1
        async with store.read() as reader:
            assert (await reader.value("slept"), await reader.value("value-1")) == (None, "set")


async def test_a_closed_store_says_so(url: str) -> None:
    async with open_store(url) as store:
        pass
    with pytest.raises(TransientError, match="closed"):
        await store.write(adds(1))


async def test_everything_is_there_after_reopening_and_numbers_go_on(url: str) -> None:
    async with open_store(url) as store:
        await store.write(adds(1))
        await store.write(lambda tx: tx.dequeue(1))
    async with open_store(url) as store:
        with anyio.fail_after(60):
            await store.wait_for_event(0)
        await store.write(adds(2))
        async with store.read() as reader:
            assert [(event.id, event.event.message) for event in await reader.events(after=0, limit=9)] == [
                (1, "1"),
                (2, "2"),
            ]
            assert [item.sequence for item in await reader.outbox(limit=9)] == [2]
            assert len(await reader.history(DeploymentId("d-1"))) == 2


async def test_what_the_block_raises_comes_out_as_it_is(url: str) -> None:
    with pytest.raises(Boom, match="mine"):
        async with open_store(url):
            raise Boom("mine")


async def test_two_writers_of_one_database_share_its_numbers_or_the_second_is_refused_by_name(url: str) -> None:
    async with open_store(url) as store:
        if url.startswith("postgresql"):
            async with open_store(url) as other, anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon((store if number % 2 else other).write, adds(number))
            async with store.read() as reader:
                events = await reader.events(after=0, limit=1000)
                assert [event.id for event in events] == list(range(1, 41))
                assert sorted(int(event.event.message) for event in events) == list(range(40))
                assert [line.id for line in await reader.history_after(0, limit=1000)] == list(range(1, 41))
            return
        with pytest.raises(Refused, match=r"in use by .*process") as refused:
            async with open_store(url, lock_wait_seconds=0.2):
                pass
        assert refused.value.hint
    async with open_store(url):
        pass


async def test_readers_that_give_up_while_they_connect_leave_nothing_behind(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def read(scope: anyio.CancelScope) -> None:
        with scope:
            async with store.read() as reader:
                await reader.sites()

    for moments in range(12):
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, scope)
            for _ in range(moments):
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    async with store.read() as reader:
        assert await reader.sites() == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
