"""Which JSON values are taken from others: those that every store can hold and every reader behind it can show.

Python reads more than that: half of a surrogate pair, NaN and Infinity, numbers of thousands of digits, a nesting
that can be read and not written. Such a value would only fail later, each time something that contains it is read.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from homeport.core.values.numbers import fits_64_bits

DEPTH_MAX: Final = 64


def unfit(value: Any, *, depth_max: int = DEPTH_MAX) -> str | None:
    """Why a value that was read cannot be taken, as the rest of a sentence; None where it can."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if depth > depth_max:
            return f"is nested deeper than {depth_max} levels"
        if isinstance(each, dict):
            waiting += [(inner, depth + 1) for pair in each.items() for inner in pair]
        elif isinstance(each, list):
            waiting += [(inner, depth + 1) for inner in each]
        elif isinstance(each, str):
            if "\0" in each or not is_unicode(each):
                return "has a text with a NUL or with half of a surrogate pair"
        elif (isinstance(each, float) and not math.isfinite(each)) or (
            isinstance(each, int) and not fits_64_bits(each)
        ):
            return "has a number that is too large"
    return None


class RepeatedKey(ValueError):
    """An object has a key twice: readers differ in which of the two values they see."""


def object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(object_pairs_hook=…)`. Raises RepeatedKey."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise RepeatedKey(f'has "{repeated[:80]}" twice in one object')
    return found


def is_unicode(text: str) -> bool:
    """Whether it can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
