"""Guards of every route: allowed hosts, allowed origins, and size limits.

Pure ASGI, so that it costs little and sees streams too. A web page can reach loopback; checking Host and Origin
prevents cross-site requests and DNS rebinding.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.core.values.addresses import is_loopback
from homeport.errors import Refused
from homeport.lazy_dataclass import dataclass
from homeport.log import bound, get_log
from homeport.serving.problems import REQUEST_ID, problem_response, refusal, unexpected_problem
from homeport.serving.request_ids import new_request_id

BODY_BYTES_MAX: Final = 1024 * 1024
KNOWN_MAX: Final = 512
"""Paths and host names whose answer is remembered."""
KNOWN_LENGTH_MAX: Final = 256
_REQUEST_ID: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")

log = get_log("homeport.serving")

READING: Final = frozenset({"GET", "HEAD"})
PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID, X-Request-Id, traceparent",
    "Access-Control-Max-Age": "600",
}
"""The answer to a browser that asks before it calls. It reveals nothing: every call is authorized itself."""

FOUND: Final = "found"
"""Where a request stores its row of the access table."""
_HEADERS: Final = "headers"
_RAW_REQUEST_ID: Final = REQUEST_ID.encode()
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")

OnAnswer = Callable[[str, str, int, float], None]
"""method, route as documented, status, seconds."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    allowed_hosts: tuple[str, ...] = ()
    """Host names besides loopback under which this role may be addressed, with or without a port."""
    body_bytes_max: int = BODY_BYTES_MAX
    body_bytes_max_by_path: Mapping[str, int] = field(default_factory=dict)
    """Size limits of routes with larger bodies, by the end of their path."""
    cors_origins: tuple[str, ...] = ()
    """Other origins whose pages may call the API; `*` lets every page read. Empty: none."""

    def limit_of(self, path: str) -> int:
        """How large the body of a request may be."""
        larger = self.body_bytes_max_by_path
        return next((size for end, size in larger.items() if path.endswith(end)), self.body_bytes_max)


class OwnNames:
    """Whether a Host header names this role."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed
        # Asked for every request, and mostly about the same.
        self._known = lru_cache(KNOWN_MAX)(self._is_ours)

    def __call__(self, host: str, server: tuple[str, int | None] | None, scheme: str | None) -> bool:
        is_ours = self._known if len(host) <= KNOWN_LENGTH_MAX else self._is_ours
        return is_ours(host, server, scheme)

    def _is_ours(self, host: str, server: tuple[str, int | None] | None, scheme: str | None) -> bool:
        default_port = 443 if scheme == "https" else 80
        name, port = split_host(host)
        if host.lower() in self._allowed or name in self._allowed:
            return True
        ours = server[1] if server and server[1] is not None else None
        if server and not is_loopback(str(server[0])):
            # Reached from outside, where every caller needs credentials; a host name proves nothing there.
            return True
        return is_loopback(name) and (ours is None or (port or default_port) == ours)


def refuse_open_bind(host: str, *, option: str = "--http", port: int = 8080, data: str = "DIR") -> None:
    """Raises Refused for an address that others can reach: authentication is not configured yet."""
    if is_loopback(host):
        return
    raise Refused(
        f"Refusing to listen on {host or 'every address'} without access control.",
        hint=f"Create a token first:  homeport tokens create --role admin --name NAME --data {data}\n"
        f"  or keep it local:      {option} 127.0.0.1:{port}",
    )


class Guard:
    """The outermost guard. Any exception inside becomes a problem document."""

    def __init__(
        self, app: ASGIApp, settings: GuardSettings | None = None, on_answer: OnAnswer | None = None
    ) -> None:
        self._app = app
        self._settings = settings or GuardSettings()
        self._on_answer = on_answer
        self._body_bytes_max = lru_cache(KNOWN_MAX)(self._settings.limit_of)
        self._is_own_name = OwnNames(self._settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        answer = _Answer(send, request_id_of(headers), self._cors(scope, headers))
        started = time.perf_counter()
        with bound(request_id=answer.request_id):
            try:
                await self._serve(scope, headers, receive, answer)
            finally:
                if self._on_answer is not None:
                    seconds = time.perf_counter() - started
                    self._on_answer(str(scope["method"]), _route_name(scope), answer.status, seconds)

    async def _serve(self, scope: Scope, headers: Mapping[str, str], receive: Receive, answer: "_Answer") -> None:
        path = str(scope["path"])
        limit_of = self._body_bytes_max if len(path) <= KNOWN_LENGTH_MAX else self._settings.limit_of
        limit = limit_of(path)
        refused = self._refusal(scope, headers, limit, is_shared=bool(answer.cors))
        if refused is not None:
            await refused(scope, receive, answer)
            return
        if answer.cors and scope["method"] == "OPTIONS":
            await Response(headers=PREFLIGHT)(scope, receive, answer)
            return
        try:
            await self._app(scope, _bounded(receive, limit), answer)
        except ClientDisconnect:
            log.info("client left before its request was read", path=scope["path"], method=scope["method"])
        except Exception:  # last resort: the caller must still get a response
            log.exception("request failed with an internal error", path=scope["path"], method=scope["method"])
            if not answer.started:
                await problem_response(unexpected_problem())(scope, receive, answer)

    def _cors(self, scope: Scope, headers: Mapping[str, str]) -> Sequence[tuple[bytes, bytes]]:
        """The headers that let a page of another origin read the response; empty where it may not. A page of any
        origin may read at most: what changes something is for origins that were named."""
        origin, origins = headers.get("origin"), self._settings.cors_origins
        if origin is None or origin == _own_origin(scope, headers):
            return ()
        method = headers.get("access-control-request-method") if scope["method"] == "OPTIONS" else scope["method"]
        if origin not in origins and not ("*" in origins and method in READING):
            return ()
        return (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"Link, Retry-After, X-Request-Id"),
            (b"vary", b"Origin"),
        )

    def _refusal(self, scope: Scope, headers: Mapping[str, str], limit: int, *, is_shared: bool) -> ASGIApp | None:
        """`is_shared` where a page of another origin may have the response."""
        host = headers.get("host", "")
        if [name for name, _ in scope["headers"]].count(b"host") > 1 or not _is_plain(str(scope["path"])):
            # A proxy and we could each use another Host; no legitimate path contains a line break.
            return refusal(
                400, "The request has two Host headers, or a path that cannot be.", code="malformed-request"
            )
        if not self._is_own_name(host, scope.get("server"), scope.get("scheme")):
            return refusal(
                421,
                f'This is not "{host[:200]}".',
                code="misdirected",
                hint="Use the address that Homeport printed when it started, such as http://127.0.0.1:8080 .",
            )
        origin = headers.get("origin")
        if origin is not None and not is_shared and origin != _own_origin(scope, headers):
            return refusal(
                403,
                "Requests from pages of another origin are not answered.",
                code="foreign-origin",
                hint="Call the API from a program, or allow the page's origin:  --cors ORIGIN",
            )
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            return refusal(413, _too_large(limit), code="too-large")
        return None


class _Answer:
    """Forwards the response, adds the request id to its headers, and records its status."""

    def __init__(self, send: Send, request_id: str, cors: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._send = send
        self.request_id = request_id
        self.cors = cors
        self.status = 0
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            extra = (_RAW_REQUEST_ID, self.request_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), extra, _NO_SNIFFING, *self.cors]}
        await self._send(message)


def _bounded(receive: Receive, limit: int) -> Receive:
    """Counts a body of unannounced length, and stops reading it at the limit."""
    count = 0

    async def bounded() -> Message:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        if count > limit:
            raise HTTPException(413, _too_large(limit))
        return message

    return bounded


def _is_plain(path: str) -> bool:
    """Whether the path means the same to everything that reads it after us. Clients resolve `.` and `..` before they
    ask; what is behind a route (an engine, a disk) would do it afterwards, when access was decided already."""
    return path.isprintable() and ("/." not in path or not any(part in {".", ".."} for part in path.split("/")))


def _too_large(limit: int) -> str:
    return f"The body is larger than the {limit // 1024} KiB that are accepted here."


def _own_origin(scope: Scope, headers: Mapping[str, str]) -> str:
    return f"{scope.get('scheme', 'http')}://{headers.get('host', '')}"


def headers_of(scope: Scope) -> Mapping[str, str]:
    """The headers of a request by name; of a repeated one the last. Decoded once, on first use."""
    state = scope.setdefault("state", {})
    found: Mapping[str, str] | None = state.get(_HEADERS)
    if found is None:
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        state[_HEADERS] = found
    return found


def request_id_of(headers: Mapping[str, str]) -> str:
    """The client's own, where it is one; else a new one."""
    given = headers.get(REQUEST_ID, "")
    return given if given and _REQUEST_ID.fullmatch(given) else new_request_id()


def split_host(host: str) -> tuple[str, int | None]:
    name, separator, port = host.rpartition(":")
    if separator and port.isascii() and port.isdigit() and len(port) <= 5:
        return name.lower(), int(port)
    return host.lower(), None


def _route_name(scope: Scope) -> str:
    """The path as documented, so that ids in it do not create a new metric each."""
    found = scope.get("state", {}).get(FOUND)
    return "other" if found is None else str(found.template)
