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
