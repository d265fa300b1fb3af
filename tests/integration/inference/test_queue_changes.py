"""Followers of the queue share one look at it."""

import time
from collections import deque
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from homeport.inference.tasks.changes import LOOK_SECONDS, QueueChanges
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


class Pools:
    """A registry of one pool that counts how often it is looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self.is_ready = False

    def pool_ids(self) -> list[str]:
        self.looks += 1
        return ["p"]

    def health(self, pool_id: str, **now: Any) -> dict[str, Any]:
        return {"ready": self.is_ready}


class Queues:
    def __init__(self) -> None:
        self.placements: deque[Any] = deque()

    def depth(self, pool_id: str) -> int:
        return 0


async def test_followers_hear_of_a_change_with_one_look_for_all_and_none_when_they_have_left() -> None:
    pools: Any = Pools()
    queues: Any = Queues()
    changes = QueueChanges(pools, queues, time.monotonic)
    heard: list[int] = []

    async def follow(version: int) -> None:
        heard.append(await changes.after(version))

    began = time.monotonic()
    with ExitStack() as following:
        for _ in range(20):
            following.enter_context(changes)
        await eventually(lambda: pools.looks >= 3, what="some looks")
        assert pools.looks <= (time.monotonic() - began) / LOOK_SECONDS + 2, "not a look for each follower"
        version = changes.version
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(follow, version)
            pools.is_ready = True
        assert heard == [version + 1] * 20
    assert changes._looking is None, "nobody follows it"
    looks = pools.looks
    with changes:
        await eventually(lambda: pools.looks > looks, what="the next follower's look")
