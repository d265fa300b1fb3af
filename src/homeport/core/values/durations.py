"""Durations as people write them: `45s`, `8m30s`, `1h`, `7d`, `4w`."""

import re
from typing import Final

_UNITS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_WEEK: Final = 7 * 86_400
"""Parsed, but never written: `14d` is as short as `2w` and says more."""
_FORM: Final = re.compile(
    r"(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?"
)


def seconds_of(text: object) -> float | None:
    """None for anything that is not a duration."""
    match = _FORM.fullmatch(text) if isinstance(text, str) and text else None
    if match is None:
        return None
    units = (_WEEK, *_UNITS.values())
    return float(sum(int(count or 0) * unit for count, unit in zip(match.groups(), units, strict=True)))


def duration_text(seconds: float) -> str:
    """The shortest form: `1h30m` for 5400."""
    rest = round(seconds)
    parts = []
    for name, unit in _UNITS.items():
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"
