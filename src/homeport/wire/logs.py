"""Batches of log lines between a site and central, and the entries that programs read over gRPC."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError

from homeport.core.logs.line import LEVELS, RANKS, LogBatch, LogLine, StoredLine
from homeport.core.logs.query import LogFilter
from homeport.core.logs.text import clean
from homeport.errors import InvalidInput, Problem
from homeport.wire.v1 import logs_pb2 as pb

LINES_MAX: Final = 20_000
BUFFER_LENGTH_MAX: Final = 64
NAME_LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 500
MS_MAX: Final = 4_102_444_800_000
"""The year 2100."""
SEQUENCE_MAX: Final = 2**63 - 1

Message = Any
"""The generated classes carry no usable types for the checker."""


def encode_batch(buffer: str, previous: int, lines: Sequence[StoredLine]) -> bytes:
    places: dict[tuple[str, str], int] = {}
    sent = []
    for number, origin, (at, source, level, text, fields, _) in lines:
        message: Message = pb.SentLine(
            source=places.setdefault((origin.node, source), len(places)),
            sequence=number,
            at_ms=to_ms(at),
            level=RANKS.get(level, 1) + 1,  # type: ignore[arg-type]
            text=text,
        )
        if fields:
            message.fields.update(fields)
        sent.append(message)
    sources = [pb.LogSource(node=node, source=source) for node, source in places]
    return pb.LogBatch(buffer=buffer, previous=previous, sources=sources, lines=sent).SerializeToString()


def decode_batch(body: bytes) -> LogBatch:
    """Raises InvalidInput."""
    message: Message = pb.LogBatch()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise InvalidInput("These are not log lines.", hint="Upgrade the site.") from error
    sources = [(each.node[:NAME_LENGTH_MAX], each.source) for each in message.sources]
    if not message.buffer or len(message.buffer) > BUFFER_LENGTH_MAX or len(message.lines) > LINES_MAX:
        raise InvalidInput(problems=[Problem("buffer", f"must be named, and a batch has at most {LINES_MAX} lines")])
    lines: list[tuple[str, LogLine]] = []
    last = min(message.previous, SEQUENCE_MAX)
    for each in message.lines:
        if each.source >= len(sources) or not last < each.sequence <= SEQUENCE_MAX:
            raise InvalidInput(problems=[Problem("lines", "must be in order, and name a source of the batch")])
        last = each.sequence
        node, source = sources[each.source]
        lines.append((node, _line(each, source)))
    return LogBatch(message.buffer, min(message.previous, SEQUENCE_MAX), lines)


def encode_stored(sequence: int) -> bytes:
    return pb.LogBatchStored(sequence=sequence).SerializeToString()


def decode_stored(body: bytes) -> int:
    message: Message = pb.LogBatchStored()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise InvalidInput("This is not an answer to log lines.", hint="Upgrade central.") from error
    return min(int(message.sequence), SEQUENCE_MAX)


def entry_of(stored: StoredLine) -> Message:
    line, origin = stored.line, stored.origin
    return pb.LogEntry(
        id=stored.id,
        at_ms=to_ms(line.at),
        level=RANKS.get(line.level, 1) + 1,  # type: ignore[arg-type]
        site=origin.site,
        node=origin.node,
        source=origin.source,
        text=line.text,
        fields=line.fields,
    )


def filter_of(request: Message) -> LogFilter:
    """Raises InvalidInput for a value out of bounds."""
    texts = ("site", "node", "kind", "deployment", "component", "job", "text")
    for name in texts:
        if len(getattr(request, name)) > TEXT_LENGTH_MAX:
            raise InvalidInput(problems=[Problem(name, f"may have {TEXT_LENGTH_MAX} characters")])
    for name in ("since_ms", "until_ms"):
        if not 0 <= getattr(request, name) < MS_MAX:
            raise InvalidInput(problems=[Problem(name, "is not a time in milliseconds since 1970")])
    if not 0 <= request.level <= len(LEVELS):
        raise InvalidInput(problems=[Problem("level", "is not a level")])
    given: dict[str, Any] = {name: getattr(request, name) or None for name in texts}
    return LogFilter(
        **given,
        level=LEVELS[request.level - 1] if request.level else None,
        since=from_ms(request.since_ms) if request.since_ms else None,
        until=from_ms(request.until_ms) if request.until_ms else None,
    )


def to_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


@lru_cache(maxsize=256)
def from_ms(milliseconds: int) -> datetime:
    """Cached, because many lines of a busy container have the same time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _line(sent: Message, source: str) -> LogLine:
    if not 0 <= sent.at_ms < MS_MAX:
        raise InvalidInput(problems=[Problem("lines.at_ms", "is not a time in milliseconds since 1970")])
    level = LEVELS[sent.level - 1] if 1 <= sent.level <= len(LEVELS) else "info"
    fields = dict(sent.fields) if sent.fields else {}
    return clean(LogLine(from_ms(sent.at_ms), source, level, sent.text, fields, sent.sequence))
