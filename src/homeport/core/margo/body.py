"""Bodies of requests as values: JSON that every store and every reader behind it can hold.

A client decides what is in them, so what would only fail later (a lone surrogate, a NUL, an infinite number, a deep
nesting) is refused here.
"""

import json
from typing import Any, Final

DEPTH_MAX: Final = 32


class Malformed(ValueError):
    """The body is not a JSON object; its text says why, for the client."""


def read_body(content: bytes) -> dict[str, Any]:
    """Raises Malformed."""
    try:
        body = json.loads(content.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed("The body is not JSON.") from error
    if not isinstance(body, dict):
        raise Malformed("The body is not a JSON object.")
    _check(body)
    return body


def _check(body: dict[str, Any]) -> None:
    waiting: list[tuple[Any, int]] = [(body, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise Malformed(f"The body is nested deeper than {DEPTH_MAX} levels.")
        if isinstance(value, dict):
            waiting += [(each, depth + 1) for pair in value.items() for each in pair]
        elif isinstance(value, list):
            waiting += [(each, depth + 1) for each in value]
        elif isinstance(value, str):
            if "\0" in value or not _is_unicode(value):
                raise Malformed("The body has a text with a NUL or with half of a surrogate pair.")
        elif isinstance(value, float) and value in (float("inf"), float("-inf")):
            raise Malformed("The body has a number that is too large.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
