"""How much a source may write: a token bucket for its lines and one for its bytes. What is above it is dropped, and a
line in the log says how much, once a second."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.core.logs.gaps import gap
from homeport.core.logs.line import LogLine
from homeport.lazy_dataclass import dataclass

TELL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RateRules:
    lines_per_second: float = 5_000.0
    """Of one container, one job or one role. 0 for no limit."""
    bytes_per_second: float = 2_000_000.0
    burst_seconds: float = 10.0
    """How many seconds' worth a source may write at once, such as a stack trace or a start."""


@dataclass(frozen=True, slots=True)
class LogRate:
    """What one source has left."""

    at: float
    lines: float
    bytes: float
    dropped: int = 0
    """Dropped lines that were not reported yet."""
    noticed_at: float = 0.0


def begin(now: float, rules: RateRules) -> LogRate:
    return LogRate(
        now,
        rules.lines_per_second * rules.burst_seconds,
        rules.bytes_per_second * rules.burst_seconds,
        noticed_at=now,
    )


def refilled(rate: LogRate, now: float, rules: RateRules) -> LogRate:
    full = begin(now, rules)
    passed = max(0.0, now - rate.at)
    return replace(
        rate,
        at=max(now, rate.at),
        lines=min(full.lines, rate.lines + passed * rules.lines_per_second),
        bytes=min(full.bytes, rate.bytes + passed * rules.bytes_per_second),
    )


def admit(rate: LogRate, lines: list[LogLine], now: float, rules: RateRules) -> tuple[LogRate, list[LogLine]]:
    """Those of the lines that are kept, and what is left. A line that reports dropped ones comes first."""
    if not rules.lines_per_second:
        return rate, lines
    rate = refilled(rate, now, rules)
    kept: list[LogLine] = []
    left_lines, left_bytes, dropped = rate.lines, rate.bytes, rate.dropped
    for line in lines:
        size = len(line.text)
        if left_lines < 1 or left_bytes < size:
            dropped += 1
            continue
        left_lines, left_bytes = left_lines - 1, left_bytes - size
        kept.append(line)
    rate = replace(rate, lines=left_lines, bytes=left_bytes, dropped=dropped)
    if lines and dropped and now - rate.noticed_at >= TELL_SECONDS:
        rate, notice = tell(rate, lines[0].source, lines[0].at, now, rules)
        kept.insert(0, notice)
    return rate, kept


def tell(rate: LogRate, source: str, at: datetime, now: float, rules: RateRules) -> tuple[LogRate, LogLine]:
    """The line for what was dropped. Call it only where something was."""
    why = (
        f"it writes more than {rules.lines_per_second:g} lines or {rules.bytes_per_second / 1e6:g} MB a second"
        " (--logs-lines of the node)"
    )
    return replace(rate, dropped=0, noticed_at=now), gap(source, at, rate.dropped, why)
