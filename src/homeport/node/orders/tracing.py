"""The node's part of a deploy's trace: a span for the order, and below it one for each step of each component.

The order carries the context of its site's span and is stored in the journal with it, so work that is resumed after
a crash belongs to the same trace.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order
from homeport.core.tracing import Span, SpanKind, TraceContext, parse_context
from homeport.errors import HomeportError
from homeport.ports import Clock, Tracer
from homeport.vocabulary import Code, NodeId, Step

ROLE: Final = "node"
NAMES: Final[Mapping[str, str]] = {
    Step.FETCHING: "pull",
    Step.PULLING: "pull",
    Step.STOPPING: "stop",
    Step.CREATING: "create",
    Step.STARTING: "start",
}
"""Span names of the steps that a runtime reports."""

OnStep = Callable[[str], None]
"""The runtime has reached another step."""


class OrderSpans:
    """The spans of one order. Without tracing it does nothing."""

    def __init__(self, tracer: Tracer | None, clock: Clock, node_id: NodeId, order: Order) -> None:
        self._clock = clock
        self._began = clock.now()
        self._parent = parse_context(order.traceparent)
        self._tracer = None if self._parent is None else tracer
        self._context = None if self._tracer is None else self._tracer.begin(self._parent)
        self._kind = order.kind
        self._about: dict[str, str | int] = {
            "homeport.node.id": node_id,
            "homeport.deployment.id": order.deployment_id,
            "homeport.order.kind": order.kind.value,
            "homeport.order.generation": order.generation,
        }
        if order.release is not None:
            self._about |= {
                "homeport.deployment.name": order.release.name,
                "homeport.revision": order.release.revision,
                "homeport.app.version": order.release.app_version,
            }

    @contextmanager
    def step(self, name: str, component: str) -> Iterator[OnStep]:
        """A span for the work on a component; where the runtime reports further steps, one for each."""
        if self._tracer is None or self._context is None:
            yield _ignore
            return
        going = _Going(self._tracer, self._clock, self._context, {**self._about, "homeport.component": component})
        going.begin(name)
        failure: Failure | None = Failure(Code.INTERNAL, "interrupted")
        try:
            yield going.on_step
            failure = None
        except HomeportError as error:
            failure = Failure(error.code, _first_line(error))
            raise
        finally:
            going.end(failure)

    def end(self, failure: Failure | None) -> None:
        """The order has ended."""
        if self._tracer is None or self._context is None:
            return
        name, now = f"{self._kind.value} on node", self._clock.now()
        failure = None if failure is None else Failure(failure.code, _first_line(failure.message))
        self._tracer.export(
            Span(name, ROLE, self._context, self._parent, self._began, now, self._about, failure, SpanKind.SERVER)
        )


class _Going:
    """The steps of one component, one after the other."""

    def __init__(self, tracer: Tracer, clock: Clock, parent: TraceContext, about: Mapping[str, str | int]) -> None:
        self._tracer = tracer
        self._clock = clock
        self._parent = parent
        self._about = about
        self._name = ""
        self._began: datetime = clock.now()

    def begin(self, name: str) -> None:
        self._name, self._began = name, self._clock.now()

    def on_step(self, step: str) -> None:
        name = NAMES.get(step)
        if name is not None and name != self._name:
            self.end(None)
            self.begin(name)

    def end(self, failure: Failure | None) -> None:
        now = self._clock.now()
        context = self._tracer.begin(self._parent)
        self._tracer.export(Span(self._name, ROLE, context, self._parent, self._began, now, self._about, failure))


def _first_line(error: object) -> str:
    """A span has only the first line of an error; a workload's output belongs in the logs."""
    return str(error).partition("\n")[0]


def _ignore(_step: str) -> None:
    pass
