"""Regular expressions on RE2: the pattern comes from an app and the value from a user, so matching must be bounded.

Time is linear in the length of pattern and text, and both are bounded. What RE2 does not support
(look-around, back references) is refused when an app is added. See ADR 0025.
"""

from functools import lru_cache
from typing import Any, Final

PATTERN_LENGTH_MAX: Final = 1_000
TEXT_LENGTH_MAX: Final = 1_000
"""The maximum length of a text that an app's pattern is matched against."""
_MEMORY_MAX: Final = 256 * 1024
"""Bytes of a compiled pattern: refuses `(x{1,1000}){1,1000}`, allows `^.{1,1000}$`."""


def matches(pattern: str, text: str) -> bool:
    """As in JSON Schema: found anywhere, ASCII classes, and `$` is the very end, not before a line break."""
    try:
        return _compiled(pattern).search(text.encode()) is not None
    except UnicodeEncodeError:  # a lone surrogate: not valid text
        return False


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with an app's pattern, as the end of a sentence; None for a good one."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        return f"has {len(pattern)} characters; at most {PATTERN_LENGTH_MAX} are read."
    try:
        _compiled(pattern)
    except ValueError as error:
        return f"is not a regular expression that RE2 reads: {error}."
    return None


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - nodes import this module and never match anything

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    try:
        return re2.compile(pattern.encode(), options=options)  # as bytes: positions in the text are not needed
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0] if error.args else ""
        raise ValueError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error
