"""The sink of spans."""

from typing import Protocol

from homeport.core.tracing import Span, TraceContext


class Tracer(Protocol):
    """The sink of finished spans. Neither call blocks, and neither raises."""

    def begin(self, parent: TraceContext | None) -> TraceContext:
        """The context of a new span: a child of `parent`, or the root of a new trace."""
        ...

    def export(self, span: Span) -> None: ...
