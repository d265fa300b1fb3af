"""The first span of a deploy: the request that asks for it. A client's own `traceparent` is continued."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.core.model.instance import Failure
from homeport.core.tracing import Span, SpanKind, TraceContext, parse_context
from homeport.fleet.tracing import ROLE, TRACEPARENT, current_trace
from homeport.ports import Clock, Tracer
from homeport.serving.auditing import CHANGING, ROUTINE
from homeport.serving.callers import declared_action

HEADER: Final = TRACEPARENT.encode()


@dataclass(frozen=True, slots=True)
class TraceSettings:
    tracer: Tracer | None
    """None where spans are not sent: what a client sends is then only handed on."""
    clock: Clock


class Tracing:
    """Inside of access control, so that nobody who is refused makes spans."""

    def __init__(self, app: ASGIApp, settings: TraceSettings, routes: Sequence[BaseRoute] = ()) -> None:
        self._app = app
        self._tracer = settings.tracer
        self._clock = settings.clock
        self._routes = [route for route in routes if isinstance(route, APIRoute)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._traced_route(scope)
        given = None if route is None else _given(scope)
        if route is None or (given is None and self._tracer is None):
            await self._app(scope, receive, send)
            return
        context = given if self._tracer is None else self._tracer.begin(given)
        status, began = 500, self._clock.now()

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        token = current_trace.set(context)
        try:
            await self._app(scope, receive, answer)
        finally:
            current_trace.reset(token)
            if self._tracer is not None and context is not None:
                self._tracer.export(self._span(route, scope, context, given, status, began=began))

    def _traced_route(self, scope: Scope) -> APIRoute | None:
        """Changes that people and programs ask for; not what machines say all day."""
        if scope["type"] != "http" or scope["method"] not in CHANGING:
            return None
        route = next((route for route in self._routes if route.matches(scope)[0] is Match.FULL), None)
        return None if route is None or declared_action(route.dependant) in ROUTINE else route

    def _span(
        self,
        route: APIRoute,
        scope: Scope,
        context: TraceContext,
        parent: TraceContext | None,
        status: int,
        *,
        began: datetime,
    ) -> Span:
        about: dict[str, str | int] = {
            "http.request.method": scope["method"],
            "http.route": route.path,
            "http.response.status_code": status,
            "homeport.action": declared_action(route.dependant) or "",
        }
        failure = Failure(str(status), f"answered {status}") if status >= 500 else None
        name, now = f"{scope['method']} {route.path}", self._clock.now()
        return Span(name, ROLE, context, parent, began, now, about, failure, SpanKind.SERVER)


def _given(scope: Scope) -> TraceContext | None:
    """The client's own context; one that cannot be read counts as none."""
    values = [value for name, value in scope["headers"] if name == HEADER]
    return parse_context(values[0].decode("latin-1")) if len(values) == 1 else None
