"""The event stream of one task: what its readers get, and when."""

import pytest

from homeport.inference.tasks.stream import KEEPALIVE, TaskStream

pytestmark = pytest.mark.anyio


async def test_a_reader_of_a_task_that_waits_is_kept_alive_until_its_events_come() -> None:
    stream = TaskStream()
    frames = stream.frames(keepalive_seconds=0.001)
    assert await anext(frames) == KEEPALIVE
    assert await anext(frames) == KEEPALIVE
    stream.started({})
    await stream.put_tokens(["a", "b"])
    stream.end({"tokens_out": 2})
    rest = b"".join([frame async for frame in frames if frame != KEEPALIVE])
    assert [line for line in rest.decode().splitlines() if line.startswith("event")] == [
        "event: started",
        "event: token",
        "event: token",
        "event: end",
    ]


async def test_a_comment_is_skipped_by_clients() -> None:
    assert KEEPALIVE.startswith(b":")
    assert KEEPALIVE.endswith(b"\n\n")
