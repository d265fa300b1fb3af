"""One request of the task plane, without a framework: its body, its caller, its answer, and whether its client is
still there."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from homeport.core.inference.task import Refusal, TaskCode, TaskRefused
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.inference.plane import Submitter
from homeport.serving.middleware.guards import headers_of
from homeport.serving.server.connections import ON_LOST, WhenLost
from homeport.serving.server.draining import REQUEST, RequestUnderWay

GONE: Final = "gone"
"""Why a request ends: its client has gone."""


class Exchange:
    __slots__ = ("_receive", "_send", "is_started", "scope", "task_id")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self.is_started = False
        self.task_id = ""
        """What the request became, once it was admitted: the answer says it, so that its placement can be found."""

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

    @property
    def correlation_id(self) -> str:
        return str(self.scope["state"].get("correlation_id", ""))

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
        return submitter_of(self.scope["state"]["caller"])

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
        if self.task_id:
            raw.append((b"x-task-id", self.task_id.encode("latin-1")))
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def while_connected(self, on_gone: Callable[[], None]) -> "_WhileConnected":
        """When the client goes away, calls the function and cancels the request. Enter it when its body was read."""
        extensions = self.scope["extensions"]
        return _WhileConnected(extensions[ON_LOST], extensions[REQUEST], on_gone)


def submitter_of(caller: Caller) -> Submitter:
    key = caller.key or caller.name
    is_trusted = caller.kind in {CallerKind.LOCAL, CallerKind.TOKEN} and caller.role is not Role.VIEWER
    return Submitter(key, caller.sites, sees_all=is_trusted and not caller.sites)


class _WhileConnected:
    """The connection itself says when it is lost: a task that waits for it would cost more than the request."""

    __slots__ = ("_on_gone", "_request", "_when_lost")

    def __init__(self, when_lost: WhenLost, request: RequestUnderWay, on_gone: Callable[[], None]) -> None:
        self._when_lost = when_lost
        self._request = request
        self._on_gone = on_gone

    def __enter__(self) -> RequestUnderWay:
        self._when_lost(self._gone)
        return self._request

    def __exit__(self, *error: object) -> None:
        self._when_lost(None)

    def _gone(self) -> None:
        self._on_gone()
        self._request.end(GONE)
