"""The journal of tasks shares writes: who waits for one does not wait for those of others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.core.inference.records import StoredTask, TaskState
from homeport.errors import InvalidInput, TransientError
from homeport.inference.tasks.artifacts import artifact_of
from homeport.inference.tasks.journal import TaskJournal
from homeport.ports import Store, Transaction
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
T = TypeVar("T")


class Journalled:
    """A store that counts its writes, with a running journal."""

    def __init__(self, store: Store) -> None:
        self.writes = 0
        self.failure: Exception | None = None
        self.late_failure: Exception | None = None
        self.may_write = anyio.Event()
        self.may_write.set()
        self.store = store
        self.read = store.read
        self.wait_for_event = store.wait_for_event
        self.journal = TaskJournal(self, SystemClock())

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.writes += 1
        if self.failure is not None:
            raise self.failure
        await self.may_write.wait()
        if self.late_failure is not None:
            raise self.late_failure
        return await self.store.write(work)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Journalled]:
    async with open_store(str(tmp_path / "store.db")) as store, anyio.create_task_group() as tasks:
        made = Journalled(store)
        tasks.start_soon(made.journal.run)
        yield made
        tasks.cancel_scope.cancel()


def task(number: int, state: TaskState = TaskState.QUEUED) -> StoredTask:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return StoredTask(id=str(number), caller="ann", digest="d", state=state, body="{}", answer="{}", at=at)


async def test_many_admissions_share_few_writes_and_all_are_durable(kept: Journalled) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(kept.journal.add, task(number))
    assert kept.writes <= 4
    async with kept.store.read() as reader:
        assert len(await reader.unfinished_tasks()) == 200


async def test_usage_waits_for_company_and_is_there_for_whoever_asks(kept: Journalled) -> None:
    for _ in range(100):
        kept.journal.used("ann", "m", tokens_in=2, tokens_out=3)
        await anyio.lowlevel.checkpoint()
    assert kept.writes == 0
    await kept.journal.settle()
    kept.journal.used("ann", "m", tokens_in=1, tokens_out=1)
    kept.journal.used("bob", "m", tokens_in=1, tokens_out=1)
    await kept.journal.settle()
    async with kept.store.read() as reader:
        found = {each.caller: (each.requests, each.tokens_in, each.tokens_out) for each in await reader.usage("2000")}
    assert found == {"ann": (101, 201, 301), "bob": (1, 1, 1)}
    assert kept.writes == 2


async def test_what_is_being_written_is_waited_for_too(kept: Journalled) -> None:
    await kept.journal.add(task(1))
    kept.may_write = anyio.Event()
    kept.journal.end(task(1, TaskState.ENDED), None)
    await eventually(lambda: kept.writes == 2)
    settled: list[bool] = []

    async def settle() -> None:
        await kept.journal.settle()
        async with kept.store.read() as reader:
            settled.append(not await reader.unfinished_tasks())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(settle)
        tasks.start_soon(settle)
        await anyio.wait_all_tasks_blocked()
        assert settled == []
        kept.journal.used("ann", "m", tokens_in=1, tokens_out=1)
        tasks.start_soon(settle)
        await anyio.wait_all_tasks_blocked()
        kept.may_write.set()
    assert settled == [True] * 3
    with anyio.fail_after(1):
        await kept.journal.settle()


async def test_who_waits_for_what_is_being_written_hears_that_it_could_not_be(kept: Journalled) -> None:
    kept.may_write = anyio.Event()
    kept.journal.end(task(1, TaskState.ENDED), None)
    await eventually(lambda: kept.writes == 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_fails_to_settle, kept)
        await anyio.wait_all_tasks_blocked()
        kept.late_failure = TransientError("The disk is full.")
        kept.may_write.set()
    kept.late_failure = None
    await kept.journal.settle()
    async with kept.store.read() as reader:
        ended = await reader.task("1")
    assert ended is not None
    assert ended.state is TaskState.ENDED


async def _fails_to_settle(kept: Journalled) -> None:
    with pytest.raises(TransientError):
        await kept.journal.settle()


async def test_a_task_that_ends_while_it_is_added_again_has_ended(kept: Journalled) -> None:
    await kept.journal.add(task(1))
    kept.journal.end(task(1, TaskState.ENDED), None)
    earlier = await kept.journal.add(replace(task(1), answer='{"again": true}'))
    assert kept.writes == 2, "both in one write"
    assert earlier is not None
    assert earlier.state is TaskState.ENDED


async def test_what_waits_is_written_when_the_role_stops(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "store.db")) as store:
        made = Journalled(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.journal.run)
            await made.journal.add(task(1))
            made.journal.end(task(1, TaskState.ENDED), None)
            made.journal.used("ann", "m", tokens_in=1, tokens_out=1)
            tasks.cancel_scope.cancel()
        async with store.read() as reader:
            assert await reader.unfinished_tasks() == []
            assert len(await reader.usage("2000")) == 1


async def test_what_is_being_written_when_the_role_stops_is_written_once(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "store.db")) as store:
        made = Journalled(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.journal.run)
            await made.journal.add(task(1))
            made.may_write = anyio.Event()
            made.journal.end(task(1, TaskState.ENDED), None)
            made.journal.used("ann", "m", tokens_in=1, tokens_out=1)
            await eventually(lambda: made.writes == 2)
            tasks.cancel_scope.cancel()
            asyncio.get_running_loop().call_later(0.05, made.may_write.set)
        async with store.read() as reader:
            assert await reader.unfinished_tasks() == []
            assert [each.requests for each in await reader.usage("2000")] == [1]


async def test_endings_transcripts_and_usage_outlive_a_database_that_is_full_for_a_while(kept: Journalled) -> None:
    await kept.journal.add(task(1))
    kept.failure = TransientError("The disk is full.")
    made = artifact_of("transcript", {"events": []}, created_ms=1, owner="ann")
    kept.journal.end(task(1, TaskState.ENDED), made)
    kept.journal.used("ann", "m", tokens_in=2, tokens_out=3)
    with pytest.raises(TransientError):
        await kept.journal.add(task(2))
    with pytest.raises(TransientError):
        await kept.journal.keep(artifact_of("plan", {}, created_ms=1))
    kept.failure = None
    await kept.journal.settle()
    async with kept.store.read() as reader:
        assert await reader.unfinished_tasks() == [], "what was refused is not there, and what had ended has"
        assert await reader.artifact(made.id) == made
        assert [(each.requests, each.tokens_out) for each in await reader.usage("2000")] == [(1, 3)]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 10**5000, {1, 2}], ids=["nan", "inf", "huge", "set"])
def test_a_document_that_no_database_takes_is_refused_before_it_can_spoil_the_write_of_others(bad: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be kept"):
        artifact_of("plan", {"value": bad}, created_ms=1)
