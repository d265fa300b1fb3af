"""/healthz, /readyz and /metrics, and nothing else: two hundred lines on h11 instead of a web framework, because the
node must stay small. Size, time and number of connections are bounded.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import h11
from anyio.abc import SocketStream

from homeport.adapters.files.disk import WriteProbe
from homeport.adapters.prometheus_text import CONTENT_TYPE, MetricsRegistry, page
from homeport.core.values.addresses import is_loopback
from homeport.errors import Conflict, system_reason
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.node.pages.status import NodeStatus

log = get_log("homeport.node")

HEAD_BYTES_MAX = 8192
BODY_BYTES_MAX = 65536
REQUEST_SECONDS = 10.0
"""From the first byte of a connection, or the end of the previous response, to the end of the response."""
CONNECTIONS_MAX = 32


@dataclass(frozen=True, slots=True)
class PageResponse:
    status: int
    body: bytes
    content_type: str = "application/json"
    allow: str = ""


class NodePages:
    """The pages to serve."""

    def __init__(self, status: NodeStatus, registry: MetricsRegistry, disk: WriteProbe | None = None) -> None:
        self._status = status
        self._disk = disk
        self._registry = registry

    def answer(self, method: str, target: str, host: str) -> PageResponse:
        # A web page can reach loopback through a DNS name of its own (DNS rebinding); the Host header reveals it.
        if not is_loopback(_host_name(host)):
            return problem(403, "Forbidden", f"This server is not called {host!r}.")
        found = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}.get(
            target.partition("?")[0]
        )
        if found is None:
            return problem(404, "Not Found", "There are only /healthz, /readyz and /metrics here.")
        if method not in ("GET", "HEAD"):
            return problem(405, "Method Not Allowed", "Only GET and HEAD are understood.", allow="GET, HEAD")
        return found()

    def _healthz(self) -> PageResponse:
        return _json(
            200,
            {
                "status": "ok",
                "role": "node",
                "version": self._status.software_version,
                "node_id": self._status.node_id,
                "runtime": self._status.runtime,
                "engine_version": self._status.engine_version,
            },
        )

    def _readyz(self) -> PageResponse:
        checks = {"engine": self._status.engine_problem or "ok", "site": self._status.site_problem or "ok"}
        if self._disk is not None:
            checks["disk"] = self._disk.check_now()
        ready = all(result == "ok" for result in checks.values())
        return _json(200 if ready else 503, {"status": "ready" if ready else "not ready", "checks": checks})

    def _metrics(self) -> PageResponse:
        return PageResponse(200, page(self._registry), CONTENT_TYPE)


@asynccontextmanager
async def serve_http(host: str, port: int, pages: NodePages) -> AsyncIterator[int]:
    """Listens while the context is open; yields the port."""
    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        raise Conflict(
            f"Cannot listen on {host}:{port}: {system_reason(error)}.",
            hint="Choose another address with --http, or stop what listens there.",
        ) from error
    slots = anyio.Semaphore(CONNECTIONS_MAX)

    async def handle(stream: SocketStream) -> None:
        async with stream:
            try:
                slots.acquire_nowait()
            except anyio.WouldBlock:
                return
            try:
                await _converse(stream, pages)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, TimeoutError):
                pass  # The client disconnected, or was too slow.
            finally:
                slots.release()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield int(listener.extra(anyio.abc.SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


def problem(status: int, title: str, detail: str, *, allow: str = "") -> PageResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return PageResponse(status, json.dumps(body).encode(), "application/problem+json", allow)


async def _converse(stream: SocketStream, pages: NodePages) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    while True:
        with anyio.fail_after(REQUEST_SECONDS):
            answer, is_head = await _next_answer(connection, stream, pages)
            if answer is None:
                return
            await _send(connection, stream, answer, is_head=is_head)
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


async def _next_answer(
    connection: h11.Connection, stream: SocketStream, pages: NodePages
) -> tuple[PageResponse | None, bool]:
    """None when the client has closed. A request that is not HTTP, or too large, still gets a response."""
    try:
        request = await _next_event(connection, stream)
        if not isinstance(request, h11.Request):
            return None, False
        size = 0
        while isinstance(event := await _next_event(connection, stream), h11.Data):
            size += len(event.data)
            if size > BODY_BYTES_MAX:
                return problem(413, "Content Too Large", "Requests to this server must not have a body."), False
        if not isinstance(event, h11.EndOfMessage):
            return None, False
    except h11.RemoteProtocolError as error:
        return problem(error.error_status_hint, "Bad Request", str(error)), False
    host = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), "")
    method = request.method.decode("latin-1")
    return pages.answer(method, request.target.decode("latin-1"), host), method == "HEAD"


async def _next_event(connection: h11.Connection, stream: SocketStream) -> object:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                await stream.send(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            try:
                connection.receive_data(await stream.receive(4096))
            except anyio.EndOfStream:
                connection.receive_data(b"")
            continue
        return event


async def _send(connection: h11.Connection, stream: SocketStream, answer: PageResponse, *, is_head: bool) -> None:
    if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ]
    if answer.allow:
        headers.append(("allow", answer.allow))
    parts = [connection.send(h11.Response(status_code=answer.status, headers=headers))]
    if not is_head:
        parts.append(connection.send(h11.Data(data=answer.body)))
    parts.append(connection.send(h11.EndOfMessage()))
    await stream.send(b"".join(part for part in parts if part))


def _json(status: int, body: dict[str, object]) -> PageResponse:
    return PageResponse(status, json.dumps(body).encode())


def _host_name(host: str) -> str:
    """The Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
