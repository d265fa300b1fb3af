"""How a webhook's request is signed: HMAC-SHA256 over its time and its body, with the pipeline's secret."""

import hmac
from hashlib import sha256
from typing import Final

TIME_HEADER: Final = "x-homeport-timestamp"
SIGNATURE_HEADER: Final = "x-homeport-signature"
WINDOW_SECONDS: Final = 300
"""How old, or how far ahead, a request may be: clocks differ, and a recorded one must not work tomorrow."""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, sha256).hexdigest()


def judge(secret: str, *, timestamp: str, signature: str, body: bytes, now: float) -> str | None:
    """Why it is not believed, for the log of central alone; None when it is."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return "its time is missing or is not a number of seconds"
    is_signed = hmac.compare_digest(sign(secret, timestamp, body).encode(), signature.encode())
    if not is_signed:
        return "its signature does not fit"
    if abs(now - int(timestamp)) > WINDOW_SECONDS:
        return "it is too old, or from the future"
    return None
