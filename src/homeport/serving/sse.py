"""Server-sent events from the one log: named, with ids, resumable without a gap.

A stream is a cursor over the store, so a slow reader costs one batch of memory and nothing is buffered for
it; one that stops reading altogether is let go. Whoever comes without a cursor first gets the present state.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from homeport.core.model.event import Deployment, Event
from homeport.errors import InvalidInput, Problem
from homeport.fleet.overview import is_settled
from homeport.fleet.scope import ReadOnly
from homeport.ports import DeploymentFilter, Reader
from homeport.serving.bodies.events import EventBody
from homeport.serving.server import Stopping
from homeport.serving.showing import event_body
from homeport.vocabulary import DeploymentId, EventKind

PING_SECONDS: Final = 10.0
SEND_SECONDS_MAX: Final = 30.0
"""How long a client may refuse to read before it is let go; it can resume where it was."""
BATCH_MAX: Final = 500
EVENT_STREAM: Final = "text/event-stream"

Frames = AsyncIterator[bytes]


def frame(data: Mapping[str, Any] | str, *, event: str, event_id: int | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {event}\ndata: {text}\n\n".encode()


def cursor_from(last_event_id: str | None, after: int | None) -> int | None:
    """The header wins: a browser sends it by itself when it reconnects to a URL that still says `after`."""
    if last_event_id is None or last_event_id == "":
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
        raise InvalidInput(problems=[Problem("Last-Event-ID", "is not the id of an event.")])
    return int(last_event_id)


class EventStream(Response):
    """Sends frames until they end, the client leaves or stops reading, or the role goes down."""

    media_type = EVENT_STREAM

    def __init__(self, frames: Frames, stopping: Stopping, *, ping_seconds: float = PING_SECONDS) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames = frames
        self._stopping = stopping
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        lock = anyio.Lock()

        async def write(chunk: bytes) -> None:
            with anyio.fail_after(SEND_SECONDS_MAX):
                async with lock:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})

        async with anyio.create_task_group() as tasks:

            async def ending(work: Callable[[], Awaitable[None]]) -> None:
                try:
                    await work()
                except TimeoutError:
                    pass
                finally:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(ending, lambda: _until_gone(receive))
            tasks.start_soon(ending, self._stopping.wait)
            tasks.start_soon(ending, lambda: _ping(write, self._ping_seconds))
            tasks.start_soon(ending, lambda: self._send_frames(write))
        with anyio.move_on_after(1):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_frames(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        await write(b": homeport\n\n")
        async for chunk in self._frames:
            await write(chunk)


async def fleet_events(store: ReadOnly, *, after: int | None) -> Frames:
    """Every event of this role's log."""
    cursor, deployments = after, None
    async with store.read() as reader:
        last = await reader.last_event_id()
        if cursor is None or cursor > last:
            cursor, deployments = last, await reader.deployments(DeploymentFilter())
    if deployments is not None:
        for deployment in deployments:
            yield _present(deployment, cursor)
        yield _snapshot_end(len(deployments), cursor)
    async for events, _ in _follow(store, cursor, None, until_settled=False):
        for event in events:
            yield _event_frame(event)


async def deployment_events(
    store: ReadOnly, deployment_id: DeploymentId, *, after: int | None, until_settled: bool
) -> Frames:
    """The events of one deployment; with `until_settled`, none after it has come to its end."""
    cursor, deployment, settled = after, None, False
    async with store.read() as reader:
        last = await reader.last_event_id()
        if cursor is None or cursor > last:
            cursor, deployment = last, await reader.deployment(deployment_id)
            settled = until_settled and await _is_settled(reader, deployment_id)
    if deployment is not None:
        yield _present(deployment, cursor)
        yield _snapshot_end(1, cursor)
    if settled:
        return
    async for events, settled in _follow(store, cursor, deployment_id, until_settled=until_settled):
        for event in events:
            yield _event_frame(event)
        if settled:
            return


async def _follow(
    store: ReadOnly, cursor: int, deployment_id: DeploymentId | None, *, until_settled: bool
) -> AsyncIterator[tuple[Sequence[Event], bool]]:
    """Batches of events after `cursor`, for ever, and whether the deployment has settled with them.

    Ids of other deployments are passed over, never missed. The view of the store is let go before a batch is
    handed out: a slow client must not hold it.
    """
    while True:
        async with store.read() as reader:
            last = await reader.last_event_id()
            events = await reader.events(after=cursor, limit=BATCH_MAX, deployment_id=deployment_id)
            full = len(events) == BATCH_MAX
            settled = (
                until_settled and deployment_id is not None and not full and await _is_settled(reader, deployment_id)
            )
        yield events, settled
        cursor = events[-1].id if full else max(cursor, last)
        if not full:
            await store.wait_for_event(cursor)


async def _is_settled(reader: Reader, deployment_id: DeploymentId) -> bool:
    deployment = await reader.deployment(deployment_id)
    if deployment is None:
        return True
    instances = await reader.instances([deployment_id])
    return is_settled(deployment, instances, await reader.history(deployment_id))


def _event_frame(event: Event) -> bytes:
    return frame(event_body(event).model_dump_json(), event=event.event.kind.value, event_id=event.id)


def _present(deployment: Deployment, cursor: int) -> bytes:
    """The present state, in the shape of the event that would have led to it. It carries no SSE id: a client
    that is cut off in the middle of these starts over instead of missing the rest."""
    body = EventBody(
        id=cursor,
        kind=EventKind.DEPLOYMENT_STATE.value,
        at=deployment.updated_at,
        message=f"{deployment.name} at {deployment.site} is {deployment.state}",
        site=deployment.site,
        deployment_id=deployment.id,
        node_id=None,
        data={
            "state": deployment.state.value,
            "name": deployment.name,
            "app_name": deployment.app_name,
            "app_version": deployment.app_version,
            "revision": deployment.revision,
            "wanted": deployment.wanted,
            "problem": deployment.problem,
            "snapshot": True,
        },
    )
    return frame(body.model_dump_json(), event=EventKind.DEPLOYMENT_STATE.value)


def _snapshot_end(count: int, cursor: int) -> bytes:
    """From here on everything is live; its id is where to resume."""
    return frame({"last_event_id": cursor, "deployments": count}, event="snapshot", event_id=cursor)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ping(write: Callable[[bytes], Awaitable[None]], seconds: float) -> None:
    while True:
        await anyio.sleep(seconds)
        await write(b": ping\n\n")
