"""An event stream over ASGI: pings between frames, and an end for a client that does not read."""

from collections.abc import AsyncIterator

import anyio
import pytest
from anyio import lowlevel
from starlette.types import Message, Scope

from homeport.serving.server import sse
from homeport.serving.server.run import Stopping
from homeport.serving.server.sse import EventStream

pytestmark = pytest.mark.anyio
SCOPE: Scope = {"type": "http", "method": "GET", "path": "/api/v1/events", "headers": []}


async def connected() -> Message:
    await anyio.sleep_forever()
    raise AssertionError


async def forever(*frames: bytes) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame
    await anyio.sleep_forever()


async def test_pings_are_sent_between_frames_and_never_inside_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "SLICE_BYTES", 4)
    written, pinged = list[bytes](), anyio.Event()

    async def send(message: Message) -> None:
        written.append(message.get("body", b""))
        await anyio.sleep(0.005)  # longer than a ping waits
        if written[-1] == b": ping\n\n":
            pinged.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            stream = EventStream(forever(b"data: one\n\n", b"data: two\n\n"), Stopping(), ping_seconds=0.001)
            tasks.start_soon(stream, SCOPE, connected, send)
            await pinged.wait()
            tasks.cancel_scope.cancel()
    sent = b"".join(written)
    assert sent.replace(b": ping\n\n", b"").startswith(b": homeport\n\ndata: one\n\ndata: two\n\n")
    assert b"data: one\n\n" in sent and b"data: two\n\n" in sent


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "SEND_SECONDS_MAX", 0.02)

    async def send(message: Message) -> None:
        if message.get("body", b"").startswith(b"data:"):
            await anyio.sleep_forever()

    with anyio.fail_after(10):
        await EventStream(forever(b"data: one\n\n"), Stopping(), ping_seconds=0.01)(SCOPE, connected, send)


async def test_a_client_that_reads_slowly_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts for one write, not for all of them."""
    monkeypatch.setattr(sse, "SEND_SECONDS_MAX", 0.5)
    last = anyio.Event()

    async def send(message: Message) -> None:
        await anyio.sleep(0.05)
        if message.get("body") == b"data: 14\n\n":
            last.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            frames = forever(*(b"data: %d\n\n" % number for number in range(15)))
            tasks.start_soon(EventStream(frames, Stopping(), ping_seconds=0.01), SCOPE, connected, send)
            await last.wait()
            tasks.cancel_scope.cancel()


async def test_a_stream_with_frames_needs_no_pings() -> None:
    written, began = list[bytes](), anyio.current_time()

    async def frames() -> AsyncIterator[bytes]:
        while anyio.current_time() < began + 0.1:
            yield b"data: one\n\n"
            await lowlevel.checkpoint()  # no pause: a busy machine would make a silence of one

    async def send(message: Message) -> None:
        written.append(message.get("body", b""))

    await EventStream(frames(), Stopping(), ping_seconds=0.05)(SCOPE, connected, send)
    assert b"data: one\n\n" in written and b": ping\n\n" not in written
