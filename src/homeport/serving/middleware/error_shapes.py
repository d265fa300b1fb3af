"""Errors in the shape that another contract defines, for the paths below a prefix, and its correlation id.

Everything below answers with problem documents; here they are translated once, those of authentication, guards and
the framework included.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.serving.problems import PROBLEM_JSON
from homeport.serving.request_ids import new_uuid

CORRELATION_ID: Final = "x-correlation-id"
_RAW_CORRELATION_ID: Final = CORRELATION_ID.encode()
_RAW_PROBLEM_JSON: Final = PROBLEM_JSON.encode()
_GIVEN: Final = re.compile(rb"[\x20-\x7e]{1,256}")

Shape = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a problem document to the contract's error body."""


def unchanged(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """The shape of paths whose contract asks for its correlation id alone: problems stay what they are."""
    return problem


class ErrorShapes:
    def __init__(self, app: ASGIApp, shapes: Mapping[str, Shape]) -> None:
        self._app = app
        self._shapes = tuple(shapes.items())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for prefix, shape in self._shapes:
                if scope["path"].startswith(prefix):
                    correlation = correlation_of(scope["headers"])
                    scope.setdefault("state", {})["correlation_id"] = correlation.decode()
                    await self._app(scope, receive, _Shaped(send, shape, correlation))
                    return
        await self._app(scope, receive, send)


class _Shaped:
    def __init__(self, send: Send, shape: Shape, correlation: bytes) -> None:
        self._send = send
        self._shape = shape
        self._correlation = correlation
        self._held: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (_RAW_CORRELATION_ID, self._correlation)]
            message = {**message, "headers": headers}
            is_problem = message["status"] >= 400 and any(
                name == b"content-type" and value.startswith(_RAW_PROBLEM_JSON) for name, value in headers
            )
            if is_problem and self._shape is not unchanged:
                self._held = message
                return
        elif self._held is not None:
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            message = await self._translate(self._held)
            self._held = None
        await self._send(message)

    async def _translate(self, start: Message) -> Message:
        problem = json.loads(self._body)
        if start["status"] == 422:
            # Neither contract knows another status for what is wrong in a body.
            start, problem = {**start, "status": 400}, {**problem, "status": 400}
        shaped = self._shape(problem)
        body = json.dumps(shaped).encode()
        kept = [(name, value) for name, value in start["headers"] if name not in {b"content-type", b"content-length"}]
        headers = [*kept, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if start["status"] == 429:
            retry_ms = shaped.get("retry_after_ms") or _milliseconds(start)
            headers.append((b"x-backoff-ms", str(retry_ms).encode()))
        await self._send({**start, "headers": headers})
        return {"type": "http.response.body", "body": body, "more_body": False}


def _milliseconds(start: Message) -> int:
    given = next((value for name, value in start["headers"] if name == b"retry-after"), b"1")
    return 1000 * int(given)


def correlation_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The client's own, where it is one; else a new one."""
    for name, value in headers:
        if name == _RAW_CORRELATION_ID and _GIVEN.fullmatch(value):
            return bytes(value)
    return new_uuid().encode()
