"""How the protocol version of a site or a node is shown."""

from collections.abc import Mapping
from typing import Any


def protocol_text(body: Mapping[str, Any]) -> str:
    """Empty from a server of an earlier version, which does not send it."""
    features = ", ".join(body.get("features") or ())
    return str(body.get("protocol", "")) + (f" ({features})" if features else "")
