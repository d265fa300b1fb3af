"""What stands before every route: who may be spoken to, from which page, and how much may be said.

Pure ASGI, so that it costs little and sees streams too. A page in a browser can reach loopback; checking Host
and Origin keeps a stranger's page (and a stranger's DNS name that points here) from using that.
"""

import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.core.addresses import is_loopback
from homeport.errors import Refused
from homeport.serving.problems import REQUEST_ID, problem_response, refusal, unexpected_problem

BODY_BYTES_MAX: Final = 1024 * 1024
_REQUEST_ID: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")

log = structlog.get_logger("homeport.serving")

OnAnswer = Callable[[str, str, int, float], None]
"""method, route as documented, status, seconds."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    allowed_hosts: tuple[str, ...] = ()
    """Names under which this role may be addressed besides loopback, with or without a port."""
    body_bytes_max: int = BODY_BYTES_MAX
    body_bytes_max_by_path: Mapping[str, int] = field(default_factory=dict)
    """Routes whose bodies may be larger, by the end of their path."""


def refuse_open_bind(host: str, *, option: str = "--http", port: int = 8080, data: str = "DIR") -> None:
    """Raises Refused for an address that others can reach: who may come in is not decided yet."""
    if is_loopback(host):
        return
    raise Refused(
        f"Refusing to listen on {host or 'every address'} without access control.",
        hint=f"Create a token first:  homeport tokens create --role admin --name NAME --data {data}\n"
        f"  or keep it local:      {option} 127.0.0.1:{port}",
    )


class Guard:
    """The outermost middleware. Nothing that goes wrong inside leaves it as anything but a problem document."""

    def __init__(
        self, app: ASGIApp, settings: GuardSettings | None = None, on_answer: OnAnswer | None = None
    ) -> None:
        self._app = app
        self._settings = settings or GuardSettings()
        self._on_answer = on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        answer = _Answer(send, _request_id(headers))
        started = time.perf_counter()
        with structlog.contextvars.bound_contextvars(request_id=answer.request_id):
            try:
                await self._serve(scope, headers, receive, answer)
            finally:
                if self._on_answer is not None:
                    seconds = time.perf_counter() - started
                    self._on_answer(str(scope["method"]), _route_name(scope), answer.status, seconds)

    async def _serve(self, scope: Scope, headers: Mapping[str, str], receive: Receive, answer: "_Answer") -> None:
        limit = self._body_bytes_max(str(scope["path"]))
        refused = self._refusal(scope, headers, limit)
        if refused is not None:
            await refused(scope, receive, answer)
            return
        try:
            await self._app(scope, _bounded(receive, limit), answer)
        except Exception:  # a request ends here, and its caller must still get an answer
            log.exception("request failed by a fault of ours", path=scope["path"], method=scope["method"])
            if not answer.started:
                await problem_response(unexpected_problem())(scope, receive, answer)

    def _refusal(self, scope: Scope, headers: Mapping[str, str], limit: int) -> ASGIApp | None:
        host = headers.get("host", "")
        if not self._may_be_called(host, scope):
            return refusal(
                421,
                f'This is not "{host[:200]}".',
                code="misdirected",
                hint="Use the address that Homeport printed when it started, such as http://127.0.0.1:8080 .",
            )
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope.get('scheme', 'http')}://{host}":
            return refusal(
                403,
                "Requests from pages of another origin are not answered.",
                code="foreign-origin",
                hint="Call the API from a program, or from a page that Homeport itself served.",
            )
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            return refusal(413, _too_large(limit), code="too-large")
        return None

    def _may_be_called(self, host: str, scope: Scope) -> bool:
        server: Sequence[Any] | None = scope.get("server")
        default_port = 443 if scope.get("scheme") == "https" else 80
        name, port = split_host(host)
        if host.lower() in self._settings.allowed_hosts or name in self._settings.allowed_hosts:
            return True
        ours = server[1] if server and server[1] is not None else None
        if server and not is_loopback(str(server[0])):
            # Reached from outside, where nobody is let in for where they are; a name proves nothing there.
            return True
        return is_loopback(name) and (ours is None or (port or default_port) == ours)

    def _body_bytes_max(self, path: str) -> int:
        larger = self._settings.body_bytes_max_by_path
        return next((size for end, size in larger.items() if path.endswith(end)), self._settings.body_bytes_max)


class _Answer:
    """Sends on, with the request id in the headers, and remembers what has been answered."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            extra = [(REQUEST_ID.encode(), self.request_id.encode()), (b"x-content-type-options", b"nosniff")]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await self._send(message)


def _bounded(receive: Receive, limit: int) -> Receive:
    """Counts a body whose length was not announced, and stops reading it at the limit."""
    count = 0

    async def bounded() -> Message:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        if count > limit:
            raise HTTPException(413, _too_large(limit))
        return message

    return bounded


def _too_large(limit: int) -> str:
    return f"The body is larger than the {limit // 1024} KiB that are accepted here."


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.match(given) else uuid.uuid4().hex


def split_host(host: str) -> tuple[str, int | None]:
    name, separator, port = host.rpartition(":")
    if separator and port.isascii() and port.isdigit() and len(port) <= 5:
        return name.lower(), int(port)
    return host.lower(), None


def _route_name(scope: Scope) -> str:
    """The path as documented, so that ids in it do not make a new metric each."""
    route = scope.get("route")
    return str(getattr(route, "path", "other"))
