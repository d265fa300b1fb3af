"""Where spans go."""

from typing import Protocol

from homeport.core.tracing import Span, TraceContext


class Tracer(Protocol):
    """Where finished spans go. Neither call waits, and neither ever fails."""

    def begin(self, parent: TraceContext | None) -> TraceContext:
        """A fresh span's context: below `parent`, or the first of a new trace."""
        ...

    def export(self, span: Span) -> None: ...
