"""Makes a log line of what a program wrote: bounded, safe to print, with the level, the time and the fields of a
structured line.

A terminal obeys escape sequences, so none gets into the log: colours are removed, every other control character is
shown as `\\x07`. JSON objects keep their fields; the words for level, time and message are those of common loggers.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from homeport.core.logs.line import GAP, RANKS, SOURCE_LENGTH_MAX, LogLine, LogSeverity, SourceKind
from homeport.core.secrets import masked

TEXT_LENGTH_MAX: Final = 16_384
FIELDS_MAX: Final = 50
FIELD_NAME_LENGTH_MAX: Final = 100
FIELD_LENGTH_MAX: Final = 2_000
FIELDS_LENGTH_MAX: Final = 16_384
JSON_LENGTH_MAX: Final = 64 * 1024
"""A longer JSON line is text: parsing it would cost more than it is worth."""
LINE_BYTES_MAX: Final = JSON_LENGTH_MAX
"""How much of a line is kept in memory while it is read."""

_OF_JOB: Final = f"{SourceKind.JOB}/"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROLS: Final = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LEVEL_WORDS: Final[Mapping[str, LogSeverity]] = {
    **dict.fromkeys(("trace", "debug", "dbg", "verbose"), LogSeverity.DEBUG),
    **dict.fromkeys(("info", "information", "informational", "notice", "inf"), LogSeverity.INFO),
    **dict.fromkeys(("warn", "warning", "wrn"), LogSeverity.WARNING),
    **dict.fromkeys(
        ("error", "err", "fatal", "critical", "crit", "panic", "alert", "emerg", "emergency", "severe"),
        LogSeverity.ERROR,
    ),
}
_LEVEL_NUMBERS: Final = (
    (50, LogSeverity.ERROR),
    (40, LogSeverity.WARNING),
    (30, LogSeverity.INFO),
    (0, LogSeverity.DEBUG),
)
"""As bunyan and pino write them."""
_LEVEL_KEYS: Final = ("level", "severity", "lvl", "log.level", "loglevel", "levelname")
_TIME_KEYS: Final = ("time", "timestamp", "ts", "@timestamp", "at", "asctime")
_TEXT_KEYS: Final = ("message", "msg", "text", "event")
_LEVEL_IN_TEXT: Final = re.compile(
    r"level=\"?([A-Za-z]+)|\[\s*([A-Za-z]+)\s*\]|<\s*([A-Za-z]+)\s*>|\(\s*([A-Za-z]+)\s*\)|TRACE\b|DEBUG\b|INFO\b"
    r"|NOTICE\b|WARN\b|WARNING\b|ERROR\b|FATAL\b|CRITICAL\b|PANIC\b"
)
"""Every part begins with a letter of its own, so that the text between is skipped fast."""
_LEVEL_BEGIN_MAX: Final = 60
_LEVEL_END_MAX: Final = 120
_YEARS: Final = (2000, 2100)
_TIME_SCALES: Final = (1, 1_000, 1_000_000, 1_000_000_000)


def parse_line(
    raw: bytes,
    *,
    source: str,
    at: datetime,
    secrets: Iterable[str] = (),
    fields: Mapping[str, str] | None = None,
    size: int | None = None,
) -> LogLine:
    """`at` is when it was written, unless the line itself says; `size` is its true length where it was cut."""
    whole = masked(raw.decode("utf-8", errors="backslashreplace"), secrets)
    return _read(LogLine(at, source, LogSeverity.INFO, whole, fields or {}), size=len(raw) if size is None else size)


def read_line_of_job(line: LogLine) -> LogLine:
    """It travels as the job printed it, since the output of the job is put together of its lines; in the log it is
    read as that of any container. Only for lines that no other role has read before."""
    if not is_of_job(line) or GAP in line.fields:
        return line
    return _read(line, size=len(line.text))


def is_of_job(line: LogLine) -> bool:
    return line.source.startswith(_OF_JOB)


def _read(line: LogLine, *, size: int) -> LogLine:
    found = _object(line.text)
    if found is None:
        text = plain(line.text, size=size)
        return line._replace(level=level_in_text(text), text=text, fields=dict(line.fields))
    message = _first(found, _TEXT_KEYS)
    return line._replace(
        at=_time(found) or line.at,
        level=_level(found) or LogSeverity.INFO,
        text=plain(message if message is not None else line.text),
        fields={**_kept(found), **line.fields},
    )


def clean(line: LogLine) -> LogLine:
    """The line of another part of Homeport, or of another machine, within the same bounds."""
    if _is_clean(line):
        return line
    level = line.level if line.level in RANKS else _LEVEL_WORDS.get(line.level.lower(), LogSeverity.INFO)
    fields = _bounded(line.fields)
    return LogLine(line.at, plain(line.source)[:SOURCE_LENGTH_MAX], level, plain(line.text), fields, line.sequence)


def plain(text: str, *, size: int | None = None) -> str:
    """Without anything that a terminal obeys, cut where it is too long."""
    cut = without_colours(text[:TEXT_LENGTH_MAX])
    if not cut.isprintable():
        cut = _CONTROLS.sub(_shown, cut.rstrip("\r\n"))[:TEXT_LENGTH_MAX]
    length = len(text) if size is None else max(size, len(text))
    return cut if length <= TEXT_LENGTH_MAX else f"{cut} … [cut: the line has {length} bytes]"


def without_colours(text: str) -> str:
    """And without the title of a window."""
    return _COLOURS.sub("", text) if "\x1b" in text else text


def _is_clean(line: LogLine) -> bool:
    """Most are: they were cleaned at the node."""
    return (
        line.level in RANKS
        and len(line.text) <= TEXT_LENGTH_MAX
        and len(line.source) <= SOURCE_LENGTH_MAX
        and line.text.isprintable()
        and line.source.isprintable()
        and (not line.fields or _are_clean(line.fields))
    )


def _are_clean(fields: Mapping[str, str]) -> bool:
    size = 0
    for name, value in fields.items():
        size += len(value)
        if len(name) > FIELD_NAME_LENGTH_MAX or len(value) > FIELD_LENGTH_MAX:
            return False
        if not (name.isprintable() and value.isprintable()):
            return False
    return len(fields) <= FIELDS_MAX and size <= FIELDS_LENGTH_MAX


def level_in_text(text: str) -> LogSeverity:
    """The first word near the beginning that is a level, in brackets, after `level=` or in capitals."""
    begin = 0
    while (match := _LEVEL_IN_TEXT.search(text, begin, _LEVEL_END_MAX)) and match.start() <= _LEVEL_BEGIN_MAX:
        begin = match.start() + 1
        level = _LEVEL_WORDS.get(match[match.lastindex or 0].lower())
        if level is not None and (text[begin - 1] in "[<(" or not _is_word(text[begin - 2 : begin - 1])):
            return level
    return LogSeverity.INFO


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _object(text: str) -> Mapping[str, Any] | None:
    if not text.startswith("{") or len(text) > JSON_LENGTH_MAX:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _level(found: Mapping[str, Any]) -> LogSeverity | None:
    value = next((found[key] for key in _LEVEL_KEYS if key in found), None)
    if isinstance(value, str):
        return _LEVEL_WORDS.get(value.strip().lower())
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return next(level for least, level in _LEVEL_NUMBERS if value >= least)
    return None


def _time(found: Mapping[str, Any]) -> datetime | None:
    value = next((found[key] for key in _TIME_KEYS if key in found), None)
    try:
        if isinstance(value, str):
            when = datetime.fromisoformat(value.strip())
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            # Seconds, milliseconds, microseconds or nanoseconds since 1970: distinguished by their size.
            scale = next((scale for scale in _TIME_SCALES if value <= 1e11 * scale), None)
            if scale is None:
                return None
            when = datetime.fromtimestamp(value / scale, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return when if _YEARS[0] <= when.year < _YEARS[1] else None


def _first(found: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    return next((found[key] for key in keys if isinstance(found.get(key), str)), None)


def _kept(found: Mapping[str, Any]) -> dict[str, str]:
    """All but what the line's own attributes say, as text, within bounds."""
    taken = {*_LEVEL_KEYS, *_TIME_KEYS, next((key for key in _TEXT_KEYS if isinstance(found.get(key), str)), "")}
    return _bounded({name: value for name, value in found.items() if name not in taken})


def _written(value: Any) -> str:
    """What could just be read may be too deep to be written."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "… nested too deeply …"


def _bounded(found: Mapping[str, Any]) -> dict[str, str]:
    kept: dict[str, str] = {}
    size = 0
    for name, value in islice(found.items(), FIELDS_MAX):
        text = value if isinstance(value, str) else _written(value)
        shown = plain(text)[:FIELD_LENGTH_MAX]
        size += len(shown)
        if size > FIELDS_LENGTH_MAX:
            break
        kept[plain(name)[:FIELD_NAME_LENGTH_MAX]] = shown
    return kept
