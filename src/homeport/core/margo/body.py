"""Bodies of requests as values: JSON objects that every store and every reader behind it can hold."""

import json
from typing import Any, Final

from homeport.core.values.json_values import RepeatedKey, object_of, unfit
from homeport.errors import InvalidInput, Problem

DEPTH_MAX: Final = 32


class Malformed(ValueError):
    """The body is not a JSON object; its text says why, for the client."""


def read_body(content: bytes) -> dict[str, Any]:
    """Raises Malformed, and InvalidInput where only a value in it is wrong."""
    try:
        body = json.loads(content.decode(), parse_constant=_no_constant, object_pairs_hook=object_of)
    except RepeatedKey as error:
        raise InvalidInput(problems=[Problem("body", str(error))]) from error
    except (ValueError, RecursionError) as error:
        raise Malformed("The body is not JSON.") from error
    if not isinstance(body, dict):
        raise Malformed("The body is not a JSON object.")
    if (why := unfit(body, depth_max=DEPTH_MAX)) is not None:
        raise InvalidInput(problems=[Problem("body", why)])
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
