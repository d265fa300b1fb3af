"""A deploy as one trace: W3C Trace Context and finished spans, as values.

A span is created when its work has ended, with the ids it was given when it began. So work that waits for another
role (an order until its result) holds no object across restarts: its context is a line of text that is sent and
stored.

For a commit without a context, one is derived from the commit's id. Central and every site then agree on the trace of
a plain `git push` without communicating.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Final

from homeport.core.model.instance import Failure
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Commit

TRACEPARENT: Final = "traceparent"
"""The key in a report, a header and an order."""
TRAILER: Final = "Traceparent"
_CONTEXT: Final = re.compile(r"^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$")
_TRAILER_LINE: Final = re.compile(rf"^{TRAILER}:[ \t]*(\S+)[ \t]*$", re.IGNORECASE | re.MULTILINE)
_TRAILERS: Final = re.compile(r"^[A-Za-z0-9-]+: \S.*$")
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    sampled: bool = True
    """Whether the trace is recorded; decided where it began."""

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


class SpanKind(StrEnum):
    """The side of a call that a span describes."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    role: str
    """central, site or node."""
    context: TraceContext
    parent: TraceContext | None
    began: datetime
    ended: datetime
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    failure: Failure | None = None
    kind: SpanKind = SpanKind.INTERNAL


def parse_context(text: str) -> TraceContext | None:
    """Parses a `traceparent`; None when it is invalid. Of a future version, the known fields are used."""
    match = _CONTEXT.fullmatch(text.strip())
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    if not match[2].strip("0") or not match[3].strip("0"):
        return None
    return TraceContext(match[2], match[3], sampled=bool(int(match[4], 16) & _SAMPLED))


def context_of_message(message: str) -> TraceContext | None:
    """The context in the trailers of a commit's message; the last one counts."""
    found = _TRAILER_LINE.findall(message)
    return parse_context(found[-1]) if found else None


def context_of_commit(commit: Commit, message: str) -> TraceContext:
    return context_of_message(message) or derived_context(commit)


def derived_context(commit: Commit) -> TraceContext:
    digits = hashlib.sha256(f"homeport trace of {commit}".encode()).hexdigest()
    return TraceContext(digits[:32], digits[32:48])


def with_trailer(message: str, context: TraceContext) -> str:
    """The message with the context as its last trailer: after existing ones, else in its own paragraph."""
    message = message.rstrip("\n")
    _, blank, last = message.rpartition("\n\n")
    joins = bool(blank) and all(_TRAILERS.fullmatch(line) for line in last.split("\n"))
    return f"{message}{'' if joins else chr(10)}\n{TRAILER}: {context}"
