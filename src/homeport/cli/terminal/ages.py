"""Ages and sizes in a readable form. Tables show these; `-o json` has the exact values."""

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SIZES: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def age(moment: str | None, now: datetime) -> str:
    """`4 m` for a moment four minutes ago; a dash for none."""
    if not moment:
        return "-"
    return duration((now - parse(moment)).total_seconds())


def duration(seconds: float) -> str:
    seconds = max(0, int(seconds))
    return next((f"{seconds // size} {unit}" for size, unit in _UNITS if seconds >= size), f"{seconds} s")


def took(seconds: float) -> str:
    """A duration: with tenths while they matter."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def size(count: int) -> str:
    for unit_size, unit in _SIZES:
        if count >= unit_size:
            return f"{count / unit_size:.1f} {unit}" if count < 10 * unit_size else f"{count // unit_size} {unit}"
    return f"{count} B"


def parse(moment: str) -> datetime:
    parsed = datetime.fromisoformat(moment)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def clock(moment: str) -> str:
    """Local time of day, for lines in order; with the date when that is another one."""
    here = parse(moment).astimezone()
    today = datetime.now().astimezone().date()
    return here.strftime("%H:%M:%S" if here.date() == today else "%Y-%m-%d %H:%M:%S")
