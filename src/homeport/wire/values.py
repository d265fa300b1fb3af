"""The values of a peer's message, each checked for its type and its bounds. What is not right is a ValueError or a
TypeError, also where Python itself would raise something else, or a database would refuse it later."""

import json
import math
import re
from datetime import UTC, datetime
from typing import Any, Final

from homeport.vocabulary import NODE_ID_PATTERN, NodeId

NUMBER_MAX: Final = 2**63 - 1
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
"""Times that every database and time zone can express."""


def document(content: str | bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def text(value: object, length_max: int | None = None) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not a text")
    if length_max is not None and len(value) > length_max:
        raise ValueError(f"a text is longer than {length_max} characters")
    return value


def storable(value: object, length_max: int | None = None) -> str:
    """A text that every database takes."""
    found = text(value, length_max)
    if "\x00" in found:
        raise ValueError("a text has a null character")
    found.encode()  # A lone surrogate is a UnicodeEncodeError, which is a ValueError.
    return found


def printed(value: object) -> str:
    """What a program printed; characters that cannot be encoded are replaced."""
    return text(value).encode(errors="replace").decode()


def shortened(value: object, length_max: int) -> str:
    """A sentence, perhaps with a program's output in it: cut, and what no database takes is replaced."""
    return printed(value).replace("\x00", "\N{REPLACEMENT CHARACTER}")[:length_max]


def whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is not a whole number")
    if not -NUMBER_MAX <= value <= NUMBER_MAX:
        raise ValueError("a number does not fit into 64 bits")
    return value


def number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is not a number")
    if not math.isfinite(value) or abs(value) > NUMBER_MAX:
        raise ValueError("a number is too large")
    return float(value)


def moment(value: object) -> datetime:
    at = datetime.fromisoformat(text(value))
    if at.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    try:
        at = at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{value!r} is out of range") from error
    if not FIRST <= at <= LAST:
        raise ValueError(f"{value!r} is out of range")
    return at


def maybe_moment(value: object) -> datetime | None:
    return None if value is None else moment(value)


def node_id(value: object) -> NodeId:
    """Of an existing or former node: only what could not be placed has none."""
    if not re.fullmatch(NODE_ID_PATTERN, text(value)):
        raise ValueError(f"{value!r} is not a node's id")
    return NodeId(text(value))
