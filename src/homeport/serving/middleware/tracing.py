"""The first span of a deploy: its HTTP request. A client's own `traceparent` is continued."""

from datetime import datetime
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.core.access.actions import ActionTable, Audit, MatchedAction
from homeport.core.model.instance import Failure
from homeport.core.tracing import TRACEPARENT, Span, SpanKind, TraceContext, parse_context
from homeport.fleet.central.tracing import ROLE, current_trace
from homeport.lazy_dataclass import dataclass
from homeport.ports import Clock, Tracer
from homeport.serving.middleware.audit import CHANGING
from homeport.serving.middleware.authorization import look_up

HEADER: Final = TRACEPARENT.encode()


@dataclass(frozen=True, slots=True)
class TraceSettings:
    tracer: Tracer | None
    """None where spans are not sent: a client's context is then only passed on."""
    clock: Clock


class Tracing:
    """Inside of access control, so that refused requests create no spans."""

    def __init__(self, app: ASGIApp, settings: TraceSettings, table: ActionTable) -> None:
        self._app = app
        self._tracer = settings.tracer
        self._clock = settings.clock
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._traced(scope)
        given = None if found is None else _given(scope)
        if found is None or (given is None and self._tracer is None):
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
                self._tracer.export(self._span(found, scope, context, given, status, began=began))

    def _traced(self, scope: Scope) -> MatchedAction | None:
        """Changes requested by users and programs; not the constant reports of machines."""
        if scope["type"] != "http" or scope["method"] not in CHANGING:
            return None
        found = look_up(scope, self._table)
        return None if found is None or found.action.audit is Audit.NONE else found

    def _span(
        self,
        found: MatchedAction,
        scope: Scope,
        context: TraceContext,
        parent: TraceContext | None,
        status: int,
        *,
        began: datetime,
    ) -> Span:
        about: dict[str, str | int] = {
            "http.request.method": scope["method"],
            "http.route": found.template,
            "http.response.status_code": status,
            "homeport.action": found.action.name,
        }
        failure = Failure(str(status), f"answered {status}") if status >= 500 else None
        name, now = f"{scope['method']} {found.template}", self._clock.now()
        return Span(name, ROLE, context, parent, began, now, about, failure, SpanKind.SERVER)


def _given(scope: Scope) -> TraceContext | None:
    """The client's own context; an invalid one counts as none."""
    values = [value for name, value in scope["headers"] if name == HEADER]
    return parse_context(values[0].decode("latin-1")) if len(values) == 1 else None
