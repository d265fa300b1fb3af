"""Dropped lines. Where lines are dropped, one line for each source takes their place and says how many, so that a
log with a gap is not taken for a complete one."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from homeport.core.logs.line import GAP, LogLine, LogSeverity

SOURCES_MAX: Final = 200
"""How many sources get their own line; what others lost is added to the last one's."""


def count_of(line: LogLine) -> int:
    """How many lines it replaces."""
    dropped = line.fields.get(GAP, "")
    return int(dropped) if dropped.isascii() and dropped.isdigit() and len(dropped) < 16 else 1


def gap(source: str, at: datetime, count: int, why: str) -> LogLine:
    """A `count` of 0 where the number is unknown, or none."""
    lines = f"{count} lines were dropped" if count > 1 else "1 line was dropped" if count else "Lines may be missing"
    return LogLine(at, source, LogSeverity.WARNING, f"{lines} here: {why}.", {GAP: str(count)})


def collapse(lines: Iterable[tuple[str, LogLine]], why: str) -> list[tuple[str, LogLine]]:
    """One line for each source (and node) in place of all these; each has the number of the last that it replaces."""
    counts: dict[tuple[str, str], int] = {}
    lasts: dict[tuple[str, str], LogLine] = {}
    for node, line in lines:
        key = node, line.source
        counts[key] = counts.get(key, 0) + count_of(line)
        lasts[key] = line
    ordered = sorted(lasts, key=lambda key: lasts[key].sequence)
    kept, others = ordered[-SOURCES_MAX:], ordered[:-SOURCES_MAX]
    if others:
        counts[kept[-1]] += sum(counts[key] for key in others)
    return [
        (node, gap(source, last.at, counts[node, source], why)._replace(sequence=last.sequence))
        for node, source in kept
        for last in (lasts[node, source],)
    ]
