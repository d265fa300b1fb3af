"""F15: a whole fleet of Margo clients comes back within a second.

Each opens a connection of its own, with its own certificate, and asks for its manifest. All are answered, those that
are connected already notice nothing, the health page answers, and what cannot be accepted at once waits in the
system, not in memory. When they have left, so has everything that was held for them.
"""

import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import psutil
import pytest
from anyio import to_thread

from homeport.serving.server.limits import Limits
from tests.faults.conftest import IS_LONG
from tests.support.herd import Visit, herd
from tests.support.margo import running_wfm
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
FLEET = 10_000
CLIENTS = FLEET if IS_LONG else 200
MEMORY_BYTES_MAX = 2**30
FILES_MORE = 50
"""Of the database, of Git and of those who ask in between."""
ASKED_MIN = 3
"""How often others are answered in between, at least."""
WAIT_SECONDS_MAX = 10.0
"""Of those, at most; a quarter of the whole time where the machine has much else to do."""


async def test_a_whole_fleet_that_reconnects_within_a_second_is_answered(tmp_path: Path) -> None:
    process = psutil.Process()
    async with running_wfm(tmp_path) as wfm, wfm.client("line-7") as connected, herd(wfm, CLIENTS) as clients:
        etag = (await connected.manifest()).headers["etag"]
        files = process.num_fds()
        assert Limits().connections_max > FLEET + FILES_MORE  # all of them, and those who are there already

        async def poll() -> bool:
            return (await connected.manifest(**{"If-None-Match": etag})).status == 304

        async def look() -> bool:
            return (await wfm.api.get("/healthz")).status == 200

        for status in (200, 304):  # the first time, and again with what they have
            polls: list[float] = []
            looks: list[float] = []
            before, began = time.process_time(), time.monotonic()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_ask_on, poll, polls)
                tasks.start_soon(_ask_on, look, looks)
                visits = await clients.come(within_seconds=1.0)
                tasks.cancel_scope.cancel()
            seconds, memory = time.monotonic() - began, process.memory_info().rss
            cpu_seconds = time.process_time() - before
            await to_thread.run_sync(_say, visits, seconds, cpu_seconds, memory, max(polls), max(looks))
            assert [each.status for each in visits] == [status] * CLIENTS
            assert memory < MEMORY_BYTES_MAX
            assert min(len(polls), len(looks)) >= ASKED_MIN
            assert max(polls + looks) < max(WAIT_SECONDS_MAX, seconds / 4)
            await clients.leave()
            await eventually(lambda: process.num_fds() <= files + FILES_MORE, what="their connections to be closed")


async def _ask_on(ask: Callable[[], Awaitable[bool]], waits: list[float]) -> None:
    """Like one that was there before; each time it is answered."""
    while True:
        began = time.monotonic()
        assert await ask()
        waits.append(time.monotonic() - began)
        await anyio.sleep(0.1)


def _say(
    visits: list[Visit], seconds: float, cpu_seconds: float, memory: int, poll_seconds: float, look_seconds: float
) -> None:
    """What it took, for whoever runs this with -s."""
    answers = sorted(each.answer_seconds for each in visits)
    totals = sorted(each.total_seconds for each in visits)
    last = int(len(visits) * 0.99)
    numbers = {
        "clients": len(visits),
        "seconds": round(seconds, 2),
        "answered a second": round(len(visits) / seconds),
        "CPU µs each": round(1e6 * cpu_seconds / len(visits)),
        "answers p50 s": round(answers[len(visits) // 2], 3),
        "answers p99 s": round(answers[last], 3),
        "with back-off p99 s": round(totals[last], 3),
        "came more than once": sum(each.attempts > 1 for each in visits),
        "memory MB": memory >> 20,
        "longest poll of another s": round(poll_seconds, 2),
        "longest look at the health page s": round(look_seconds, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(numbers, ensure_ascii=False))
