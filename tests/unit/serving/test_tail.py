"""Followers of one scope share what they read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from homeport.core.model.event import Subject
from homeport.ports import Reader
from homeport.serving.server import tail as tails
from homeport.serving.server.tail import EVERYTHING, About, Tail
from tests.conformance.store import records
from tests.simulation.store import Disk, MemoryStore

pytestmark = pytest.mark.anyio


class CountingStore(MemoryStore):
    reads = 0

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        self.reads += 1
        async with super().read() as reader:
            yield reader


async def add(store: MemoryStore, count: int, deployment: str = "d") -> None:
    events = [records.event(str(number), deployment_id=deployment) for number in range(count)]
    await store.write(lambda tx: tx.append_events(events))


def ids(frames: bytes) -> list[int]:
    return [int(line[4:]) for line in frames.decode().splitlines() if line.startswith("id: ")]


async def test_a_thousand_followers_read_the_store_once() -> None:
    store = CountingStore(Disk())
    tail, seen = Tail(store), []
    await tail.after(0, EVERYTHING)
    store.reads = 0

    async def follow() -> None:
        frames, cursor = await tail.after(0, EVERYTHING)
        assert cursor == 3
        seen.append(ids(frames))

    await add(store, 3)
    async with anyio.create_task_group() as tasks:
        for _ in range(1_000):
            tasks.start_soon(follow)
    assert seen == [[1, 2, 3]] * 1_000
    assert store.reads == 1


async def test_who_is_behind_what_is_kept_catches_up_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "KEPT_MAX", 20)
    monkeypatch.setattr(tails, "BATCH_MAX", 10)
    store = MemoryStore(Disk())
    tail, seen, cursor = Tail(store), [], 0
    for _ in range(7):
        await add(store, 15)
        _, newest = await tail.after(cursor, EVERYTHING)
        while newest < 15:
            _, newest = await tail.after(newest, EVERYTHING)
        cursor = newest
    late = 0
    while late < 105:
        frames, late = await tail.after(late, EVERYTHING)
        seen += ids(frames)
    assert seen == list(range(1, 106))


async def test_only_what_is_about_the_subject_is_handed_out() -> None:
    store = MemoryStore(Disk())
    tail = Tail(store)
    await tail.after(0, EVERYTHING)
    await add(store, 2, "one")
    await add(store, 2, "two")
    frames, cursor = await tail.after(0, About(frozenset({Subject("deployment", "two")})))
    assert (ids(frames), cursor) == ([3, 4], 4)


async def followed(tail: Tail, seen: list[list[int]], until: int) -> None:
    """Follows as a client of the event stream does, up to an event."""
    cursor, mine = 0, list[int]()
    seen.append(mine)
    while cursor < until:
        frames, cursor = await tail.after(cursor, EVERYTHING)
        mine += ids(frames)
        if cursor < until:
            await tail.wait(cursor)


@pytest.mark.parametrize("count", [1, 3, 200])
async def test_followers_that_wait_are_all_woken_and_miss_nothing(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "CROWD_SECONDS", 0.01)
    store = CountingStore(Disk())
    tail, seen = Tail(store), list[list[int]]()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(followed, tail, seen, 30)
            await anyio.wait_all_tasks_blocked()
            store.reads = 0
            for _ in range(10):
                await anyio.sleep(0.002)
                await add(store, 3)
    assert seen == [list(range(1, 31))] * count
    assert store.reads <= 10


async def test_events_reach_a_crowd_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "CROWD_SECONDS", 0.2)
    store = CountingStore(Disk())
    tail, seen = Tail(store), list[list[int]]()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(followed, tail, seen, 5)
            await anyio.wait_all_tasks_blocked()
            store.reads = 0
            for _ in range(5):
                await add(store, 1)
    assert seen == [[1, 2, 3, 4, 5]] * 100
    assert store.reads == 1


async def test_a_follower_that_leaves_takes_nobody_with_it() -> None:
    """The first one waits for the store on behalf of all."""
    store = MemoryStore(Disk())
    tail, seen = Tail(store), list[list[int]]()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as all_of_them:
            leaving = [anyio.CancelScope() for _ in range(5)]

            async def follow_until_left(scope: anyio.CancelScope) -> None:
                with scope:
                    await followed(tail, [], 99)

            for scope in leaving:
                all_of_them.start_soon(follow_until_left, scope)
            all_of_them.start_soon(followed, tail, seen, 1)
            for scope in leaving:
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
            await anyio.wait_all_tasks_blocked()
            await add(store, 1)
    assert seen == [[1]]


async def test_a_follower_that_reads_slowly_keeps_nobody_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "CROWD_SECONDS", 0.01)
    store = MemoryStore(Disk())
    tail, seen = Tail(store), list[list[int]]()

    async def watch_once_and_stall(done: anyio.Event) -> None:
        await tail.wait(0)
        await done.wait()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            done = anyio.Event()
            for _ in range(60):
                tasks.start_soon(watch_once_and_stall, done)
            await anyio.wait_all_tasks_blocked()
            await add(store, 1)
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as others:
                for _ in range(3):
                    others.start_soon(followed, tail, seen, 2)
                await anyio.wait_all_tasks_blocked()
                await add(store, 1)
            done.set()
    assert seen == [[1, 2]] * 3
