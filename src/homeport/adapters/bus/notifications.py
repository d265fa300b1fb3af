"""The encoding of messages as PostgreSQL notifications. The store sends some of its own, with its commits."""

import json
from typing import Any, Final

CHANNEL: Final = "homeport"
EVENTS: Final = "events"
"""The topic of the event log: `last` is the newest id."""
BYTES_MAX: Final = 7_900
"""PostgreSQL accepts less than 8,000 bytes in one notification."""


def encode(content: dict[str, Any]) -> str:
    """ASCII, so that a character is a byte."""
    return json.dumps(content, separators=(",", ":"))


def events_moved(last: int) -> str:
    """The statement that announces new events, to be run with the commit that brings them."""
    return f"SELECT pg_notify('{CHANNEL}', '{encode({'topic': EVENTS, 'body': {'last': int(last)}})}')"
