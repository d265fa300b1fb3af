"""Bodies of requests as values: JSON objects that every store and every reader behind it can hold."""

from typing import Any, Final

from homeport.core.values.json_values import read_json

DEPTH_MAX: Final = 32


class Malformed(ValueError):
    """The body is not a JSON object; its text says why, for the client."""


def read_body(content: bytes) -> dict[str, Any]:
    """Raises Malformed."""
    try:
        body = read_json(content.decode(), depth_max=DEPTH_MAX)
    except UnicodeDecodeError as error:
        raise Malformed("The body is not JSON.") from error
    except ValueError as error:
        raise Malformed(f"The body {error}.") from error
    if not isinstance(body, dict):
        raise Malformed("The body is not a JSON object.")
    return body
