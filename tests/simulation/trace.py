"""What happened, in order and virtual time: told when a seed fails, and compared to prove that a seed repeats."""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from homeport.log import fields_of
from tests.simulation.loop import current_time

who: ContextVar[str] = ContextVar("who", default="world")
"""Whose code is running."""

_QUIET = frozenset({"joined central", "node disconnected"})


class Trace:
    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, tuple[tuple[str, Any], ...]]] = []

    def note(self, text: str, **fields: Any) -> None:
        self._lines.append((current_time(), who.get(), text, tuple(fields.items())))

    def last(self, count: int) -> list[str]:
        return [_shown(*line) for line in self._lines[-count:]]

    def mentioning(self, word: str, count: int) -> list[str]:
        return [line for line in (_shown(*each) for each in self._lines) if word in line][-count:]

    def digest(self) -> str:
        text = "\n".join(_shown(*line) for line in self._lines)
        return hashlib.sha256(text.encode()).hexdigest()

    # --- what the roles log is part of it ---------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Afterwards logs go where they went before: there is no virtual time any more to tell them in."""
        logger = logging.getLogger("homeport")
        before = logger.handlers, logger.level, logger.propagate
        logger.handlers, logger.propagate = [_Handler(self)], False
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.handlers, logger.propagate = before[0], before[2]
            logger.setLevel(before[1])


class _Handler(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() in _QUIET:
            return
        fields = fields_of(record)
        if record.exc_info is not None:
            fields["error"] = repr(record.exc_info[1])
        self._trace.note(record.getMessage(), **fields)


def _shown(at: float, name: str, text: str, fields: tuple[tuple[str, Any], ...]) -> str:
    told = " ".join(f"{key}={value}" for key, value in fields if value is not None)
    return f"{at:10.3f}  {name:<10}  {text}  {told}".rstrip()
