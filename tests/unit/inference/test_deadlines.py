"""One timer for all tasks that wait."""

import asyncio

import pytest

from homeport.inference.tasks.deadlines import EARLY_SECONDS, SPARE_MAX, TaskDeadlines
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


class Waiting:
    """Tasks that wait, and what became of them."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}
        self.expired: list[str] = []
        self.too_early: list[str] = []
        self.deadlines = TaskDeadlines(self._seconds_left, self._expire)

    def wait(self, task_id: str, seconds: float) -> None:
        self.until[task_id] = asyncio.get_running_loop().time() + seconds
        self.deadlines.watch(task_id, seconds)

    def _seconds_left(self, task_id: str) -> float | None:
        until = self.until.get(task_id)
        return None if until is None else until - asyncio.get_running_loop().time()

    def _expire(self, task_id: str) -> None:
        if self.until.pop(task_id) - asyncio.get_running_loop().time() > EARLY_SECONDS:
            self.too_early.append(task_id)
        self.expired.append(task_id)


async def test_tasks_expire_in_the_order_of_their_deadlines() -> None:
    waiting = Waiting()
    waiting.wait("late", 0.03)
    waiting.wait("early", 0.01)
    waiting.wait("never", 3600)
    await eventually(lambda: waiting.expired == ["early", "late"])
    assert list(waiting.until) == ["never"]
    waiting.deadlines.close()


async def test_a_task_that_no_longer_waits_does_not_expire() -> None:
    waiting = Waiting()
    waiting.wait("runs", 0.01)
    waiting.wait("waits", 0.02)
    del waiting.until["runs"]
    await eventually(lambda: bool(waiting.expired))
    assert waiting.expired == ["waits"]


async def test_an_id_that_came_back_expires_at_its_own_time() -> None:
    waiting = Waiting()
    waiting.wait("again", 0.01)
    waiting.wait("again", 0.04)
    await eventually(lambda: waiting.expired == ["again"])
    assert not waiting.too_early


async def test_a_clock_that_is_behind_the_loops_delays_a_task_and_loses_none() -> None:
    waiting = Waiting()
    waiting.wait("slow clock", 0.01)
    waiting.until["slow clock"] += 0.03
    await eventually(lambda: waiting.expired == ["slow clock"])
    assert not waiting.too_early


async def test_tasks_that_began_long_before_their_deadline_leave_nothing() -> None:
    waiting = Waiting()
    waiting.wait("waits", 3600)
    for number in range(10 * SPARE_MAX):
        waiting.wait(f"task {number}", 3600)
        del waiting.until[f"task {number}"]
    assert len(waiting.deadlines._entries) <= SPARE_MAX + 1
    assert any(task_id == "waits" for _, task_id in waiting.deadlines._entries)
    waiting.deadlines.close()
