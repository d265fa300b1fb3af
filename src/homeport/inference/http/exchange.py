"""One request of the task plane, without a framework: its body, its caller, its answer, and whether its client is
still there."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import anyio
from starlette.types import Receive, Scope, Send

from homeport.core.inference.task import Refusal, TaskCode, TaskRefused
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.inference.plane import Submitter
from homeport.serving.middleware.guards import headers_of


class Exchange:
    __slots__ = ("_receive", "_send", "is_started", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self.is_started = False

    # --- the request ------------------------------------------------------------------------------------------

    @property
    def params(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.scope["path_params"]
        return found

    @property
    def query(self) -> Mapping[str, list[str]]:
        return parse_qs(self.scope.get("query_string", b"").decode("latin-1"))

    @property
    def headers(self) -> Mapping[str, str]:
        return headers_of(self.scope)

    async def body(self) -> bytes:
        """Raises TaskRefused where the client has gone before it was whole."""
        message = await self._receive()
        if not message.get("more_body") and message["type"] == "http.request":
            return bytes(message.get("body", b""))
        parts = []
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self._receive()
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, "The client has gone."))

    @property
    def submitter(self) -> Submitter:
        caller: Caller = self.scope["state"]["caller"]
        key = caller.key or caller.name
        is_trusted = caller.kind in {CallerKind.LOCAL, CallerKind.TOKEN} and caller.role is not Role.VIEWER
        return Submitter(key, caller.sites, sees_all=is_trusted and not caller.sites)

    # --- the answer -------------------------------------------------------------------------------------------

    async def json(self, status: int, data: Any, headers: Mapping[str, str] | None = None) -> None:
        await self.answer(status, json.dumps(data).encode(), "application/json", headers)

    async def answer(
        self, status: int, body: bytes, content_type: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        raw = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
        if content_type:
            raw.append((b"content-type", content_type.encode("latin-1")))
        await self._start(status, raw, headers or {})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        await self._start(status, [], headers)

    async def _start(self, status: int, raw: list[tuple[bytes, bytes]], headers: Mapping[str, str]) -> None:
        self.is_started = True
        raw += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def while_connected(self, on_gone: Callable[[], None], *, after_seconds: float = 0.0) -> "_WhileConnected":
        """Cancels the body when the client goes away. Enter it when the request's body was read. With `after_seconds`
        it is watched from then on, for requests that mostly have been answered by then."""
        return _WhileConnected(self._receive, on_gone, after_seconds)


class _WhileConnected:
    """One plain task, ended in any case: a task group for each request would cost more than the request."""

    __slots__ = ("_after_seconds", "_on_gone", "_receive", "_scope", "_timer", "_watcher")

    def __init__(self, receive: Receive, on_gone: Callable[[], None], after_seconds: float) -> None:
        self._receive = receive
        self._on_gone = on_gone
        self._after_seconds = after_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._scope = anyio.CancelScope()
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> anyio.CancelScope:
        self._scope.__enter__()
        if self._after_seconds:
            self._timer = asyncio.get_running_loop().call_later(self._after_seconds, self._begin)
        else:
            self._begin()
        return self._scope

    def __exit__(self, *error: Any) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        watcher = self._watcher
        if watcher is not None:
            watcher.cancel()
            if watcher.done() and not watcher.cancelled():
                watcher.exception()
        return self._scope.__exit__(*error)

    def _begin(self) -> None:
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._on_gone()
        self._scope.cancel()
