"""Server-sent events from the one log: named, with ids, resumable without a gap.

A stream is a cursor over the store, so a slow reader costs one batch of memory and nothing is buffered for it; one
that stops reading is disconnected. A client without a cursor first gets the current state.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from homeport.core.model.event import Deployment, Event, Subject
from homeport.errors import InvalidInput, Problem, TransientError
from homeport.fleet.shared.overview import is_settled
from homeport.fleet.shared.scope import ReadOnly
from homeport.log import get_log
from homeport.ports import DEPLOYMENTS, Cut, DeploymentFilter, SeenReader
from homeport.serving.bodies.events import EventBody
from homeport.serving.server.run import Stopping
from homeport.serving.server.tail import BATCH_MAX, EVERYTHING, About, Tail, rendered
from homeport.vocabulary import DeploymentId, EventKind, SubjectKind

PING_SECONDS: Final = 10.0
SEND_SECONDS_MAX: Final = 30.0
"""How long a client may not read before it is disconnected, at the next ping; it can resume where it was."""
SLICE_BYTES: Final = 64 * 1024
"""What a connection is given at once: all that is kept for one client that does not read. A batch itself is shared
by those who follow the same."""
EVENT_STREAM: Final = "text/event-stream"

Frames = AsyncIterator[bytes]

log = get_log("homeport.serving")


_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def frame(data: Mapping[str, Any] | str, *, event: str, event_id: int | None = None) -> bytes:
    text = data if isinstance(data, str) else _encode(data)
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {event}\ndata: {text}\n\n".encode()


def cursor_from(last_event_id: str | None, after: int | None) -> int | None:
    """The header takes precedence: a browser sends it when it reconnects to a URL that still has `after`."""
    if last_event_id is None or last_event_id == "":
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
        raise InvalidInput(problems=[Problem("Last-Event-ID", "is not the id of an event.")])
    return int(last_event_id)


class EventStream(Response):
    """Sends frames until they end, the client disconnects or stops reading, or the role shuts down."""

    media_type = EVENT_STREAM

    def __init__(
        self,
        frames: Frames,
        stopping: Stopping,
        *,
        ping_seconds: float = PING_SECONDS,
        ping: Callable[[], bytes] = lambda: b": ping\n\n",
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames = frames
        self._stopping = stopping
        self._ping_seconds = ping_seconds
        self._ping = ping
        self._writing_since: float | None = None
        self._written_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:

            async def ending(work: Callable[[], Awaitable[None]]) -> None:
                try:
                    await work()
                except (TimeoutError, TransientError) as error:
                    log.debug("event stream ended early", error=str(error))  # its client resumes where it was
                finally:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(ending, lambda: _until_gone(receive))
            tasks.start_soon(ending, self._stopping.wait)
            tasks.start_soon(ending, lambda: self._send_pings(send))
            tasks.start_soon(ending, lambda: self._send_frames(send))
        with anyio.move_on_after(1):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_frames(self, send: Send) -> None:
        await self._write(send, b": homeport\n\n")
        async for chunk in self._frames:
            await self._write(send, chunk)

    async def _write(self, send: Send, chunk: bytes) -> None:
        self._writing_since = anyio.current_time()
        for start in range(0, len(chunk), SLICE_BYTES):
            await send({"type": "http.response.body", "body": chunk[start : start + SLICE_BYTES], "more_body": True})
        self._writing_since, self._written_at = None, anyio.current_time()

    async def _send_pings(self, send: Send) -> None:
        """After a silence: between frames, never inside one. Also looks for a client that does not read, so that a
        write, of which a thousand followers need a thousand, takes no timer of its own."""
        silent_since = anyio.current_time()
        while True:
            await anyio.sleep_until(silent_since + self._ping_seconds)
            now = anyio.current_time()
            if self._writing_since is not None:
                if now - self._writing_since > SEND_SECONDS_MAX:
                    raise TimeoutError("the client does not read")
            elif now >= self._written_at + self._ping_seconds:
                await send({"type": "http.response.body", "body": self._ping(), "more_body": True})
            else:
                now = self._written_at
            silent_since = now


async def fleet_events(tail: Tail, *, after: int | None, about: About = EVERYTHING) -> Frames:
    """Every event of this role's log, or those about some subjects."""
    cursor = 0 if after is None else after
    if after is None or await tail.is_ahead(after):
        async with tail.store.read() as reader:
            cursor, count = await reader.last_event_id(), 0
        async for deployments in _deployments_about(tail.store, about):
            count += len(deployments)
            yield b"".join(_present(deployment, cursor) for deployment in deployments)
        yield _snapshot_end(count, cursor)
    while True:
        frames, cursor = await tail.after(cursor, about)
        if frames:
            yield frames
        # Who asks for single subjects waits for them, mostly for a moment; the others watch.
        await (tail.store.wait_for_event if about.subjects else tail.wait)(cursor)


async def _deployments_about(store: ReadOnly, about: About) -> AsyncIterator[Sequence[Deployment]]:
    """The deployments whose current state comes first, page by page. Later changes follow as events."""
    if about.subjects:
        ids = [DeploymentId(each.id) for each in about.subjects if each.kind == SubjectKind.DEPLOYMENT]
        async with store.read() as reader:
            found = await reader.deployments_by_ids(ids)
        yield [row for row in found if about.site in (None, row.site)]
        return
    cut: Cut | None = Cut(BATCH_MAX)
    while cut is not None:
        async with store.read() as reader:
            page = await reader.page(DEPLOYMENTS, DeploymentFilter(site=about.site), cut)
        yield page.items
        cut = None if page.next is None else Cut(BATCH_MAX, page.next)


async def deployment_events(
    store: ReadOnly, deployment_id: DeploymentId, *, after: int | None, until_settled: bool
) -> Frames:
    """The events of one deployment; with `until_settled`, none after it has settled."""
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
    async for events, settled in follow(store, cursor, deployment_id, until_settled=until_settled):
        for event in events:
            yield rendered(event)
        if settled:
            return


async def follow(
    store: ReadOnly, cursor: int, deployment_id: DeploymentId, *, until_settled: bool
) -> AsyncIterator[tuple[Sequence[Event], bool]]:
    """Batches of events after `cursor`, forever, and whether the deployment has settled with them.

    Ids of other deployments are skipped, never missed. The read is closed before a batch is yielded: a slow client
    must not hold it open.
    """
    while True:
        async with store.read() as reader:
            last = await reader.last_event_id()
            events = await reader.events(after=cursor, limit=BATCH_MAX, deployment_id=deployment_id)
            full = len(events) == BATCH_MAX
            settled = until_settled and not full and await _is_settled(reader, deployment_id)
        yield events, settled
        cursor = events[-1].id if full else max(cursor, last)
        if not full:
            await store.wait_for_event(cursor)


async def _is_settled(reader: SeenReader, deployment_id: DeploymentId) -> bool:
    deployment = await reader.deployment(deployment_id)
    if deployment is None:
        return True
    instances = await reader.instances([deployment_id])
    return is_settled(deployment, instances, await reader.history(deployment_id))


def _present(deployment: Deployment, cursor: int) -> bytes:
    """The current state, in the form of the event that would have led to it. It carries no SSE id: a client that is
    disconnected in the middle of these starts over instead of missing the rest."""
    body = EventBody(
        id=cursor,
        kind=EventKind.DEPLOYMENT_STATE.value,
        at=deployment.updated_at,
        message=f"{deployment.name} at {deployment.site} is {deployment.state}",
        site=deployment.site,
        deployment_id=deployment.id,
        node_id=None,
        subject=str(Subject(SubjectKind.DEPLOYMENT, deployment.id)),
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
