"""Requests that are taken at their connection, without a task, a scope or the middleware: those that come by the
thousand in a second.

A shortcut takes only what is usual: the exact path, a small body of known length, no header twice, a caller who was
authenticated a moment ago and may do it. These are decided by the rules that the middleware has. Whatever else comes
is left to the application, which also refuses and records it.
"""

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from homeport.core.access.actions import ActionTable, MatchedAction
from homeport.core.model.caller import Caller
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.log import bound, get_log
from homeport.serving.middleware.authentication import Authenticator
from homeport.serving.middleware.authorization import check
from homeport.serving.middleware.error_shapes import Shape, correlation_of
from homeport.serving.middleware.guards import GuardSettings, OnAnswer, OwnNames, request_id_of
from homeport.serving.problems import problem_response, unexpected_problem
from homeport.serving.server.connections import Answer, RequestHead, TakeBody

BODY_BYTES_MAX: Final = 64 * 1024
"""A larger body is read by the application, which does not have to hold all of it at once."""
_UNUSUAL: Final = frozenset({"origin", "transfer-encoding", "content-encoding", "expect", "upgrade"})

log = get_log("homeport.serving")

Finish = Callable[[int, bytes, bytes], None]
"""Answers, once: status, JSON, and further header lines, each with its line break."""


@dataclass(frozen=True, slots=True)
class ShortRequest:
    caller: Caller
    headers: Mapping[str, str]
    correlation_id: str
    body: bytes


ShortHandler = Callable[[ShortRequest, Finish], None]
"""Answers a request now or later. What it raises is answered as an internal error."""


class Shortcuts:
    """`server.connections.Shortcut` for the handlers of a role."""

    def __init__(
        self,
        handlers: Mapping[tuple[str, str], ShortHandler],
        table: ActionTable,
        *,
        authenticator: Authenticator,
        guards: GuardSettings,
        on_answer: OnAnswer,
        shapes: Mapping[str, Shape],
    ) -> None:
        self._routes = {
            (method.encode(), path.encode()): _Route(
                method, _found(table, method, path), handler, min(guards.limit_of(path), BODY_BYTES_MAX), shapes
            )
            for (method, path), handler in handlers.items()
        }
        self._authenticator = authenticator
        self._is_own_name = OwnNames(guards.allowed_hosts)
        self._on_answer = on_answer

    def __call__(self, arrival: RequestHead) -> TakeBody | None:
        route = self._routes.get((arrival.method, arrival.target))
        if route is None:
            return None
        began = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in arrival.headers}
        if len(headers) != len(arrival.headers) or not _UNUSUAL.isdisjoint(headers):
            return None
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > route.body_bytes_max:
            return None
        if not self._is_own_name(headers.get("host", ""), arrival.server, arrival.scheme):
            return None
        caller = self._authenticator.recognize(headers, arrival.address)
        if caller is None or not _may(caller, route.found):
            return None
        taken = _Taken(
            route, request_id_of(headers).encode(), correlation_of(arrival.headers), began, self._on_answer
        )
        return partial(taken.take, caller, headers)


class _Taken:
    """One request, until it is answered."""

    __slots__ = ("_answer", "_began", "_correlation", "_on_answer", "_request_id", "_route")

    def __init__(
        self, route: "_Route", request_id: bytes, correlation: bytes, began: float, on_answer: OnAnswer
    ) -> None:
        self._route = route
        self._request_id = request_id
        self._correlation = correlation
        self._began = began
        self._on_answer = on_answer
        self._answer: Answer | None = None

    def take(self, caller: Caller, headers: Mapping[str, str], body: bytes, answer: Answer) -> None:
        self._answer, route = answer, self._route
        with bound(request_id=self._request_id.decode()):
            try:
                route.handler(ShortRequest(caller, headers, self._correlation.decode("latin-1"), body), self.finish)
            except Exception:  # last resort, as in `Guard`
                log.exception("request failed with an internal error", path=route.found.template, method=route.method)
                if self._answer is not None:
                    self.finish(500, route.internal_error, b"")

    def finish(self, status: int, content: bytes, lines: bytes) -> None:
        """See `Finish`."""
        answer, self._answer = self._answer, None
        assert answer is not None, "it is answered once"
        answer(status, _RESPONSE % (len(content), self._request_id, self._correlation, lines, content))
        seconds = time.perf_counter() - self._began
        self._on_answer(self._route.method, self._route.found.template, status, seconds)


_RESPONSE: Final = (
    b"content-length: %d\r\ncontent-type: application/json\r\nx-request-id: %b\r\n"
    b"x-content-type-options: nosniff\r\nx-correlation-id: %b\r\n%b\r\n%b"
)


class _Route:
    __slots__ = ("body_bytes_max", "found", "handler", "internal_error", "method")

    def __init__(
        self,
        method: str,
        found: MatchedAction,
        handler: ShortHandler,
        body_bytes_max: int,
        shapes: Mapping[str, Shape],
    ) -> None:
        self.method = method
        self.found = found
        self.handler = handler
        self.body_bytes_max = body_bytes_max
        problem = json.loads(bytes(problem_response(unexpected_problem()).body))
        shape = next((shape for prefix, shape in shapes.items() if found.template.startswith(prefix)), dict)
        self.internal_error = json.dumps(shape(problem)).encode()


def _found(table: ActionTable, method: str, path: str) -> MatchedAction:
    found = table.find(method, path)
    if found is None:
        raise ValueError(f"{method} {path} has a shortcut and no action")
    return found


def _may(caller: Caller, found: MatchedAction) -> bool:
    try:
        check(caller, found)
    except HomeportError:
        return False
    return True
