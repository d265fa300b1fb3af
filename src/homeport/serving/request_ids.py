"""Random ids that every request needs, in a fraction of the time that the `uuid` module takes for one."""

import os
from typing import Final

_AHEAD_MAX: Final = 256
"""Ids whose randomness is read at once: asking the system for each takes as long as all else that an id needs."""
_VARIANT: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}

_ahead: list[str] = []
"""Thirty-two random hexadecimal digits each. Threads may take from it: taking one is a single step."""
# Two processes must not give the same ids.
os.register_at_fork(after_in_child=_ahead.clear)


def new_request_id() -> str:
    try:
        return _ahead.pop()
    except IndexError:
        digits = os.urandom(16 * _AHEAD_MAX).hex()
        _ahead.extend(digits[start : start + 32] for start in range(32, len(digits), 32))
        return digits[:32]


def new_uuid() -> str:
    """A random UUID (RFC 9562, version 4) as text."""
    text = new_request_id()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:]}"
