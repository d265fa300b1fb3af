"""Tokens that are shown once and kept as a hash: `hp_<id>_<secret>` for people, `hpj_<id>_<secret>` for joining.

The id finds the record, the secret proves the holder. Chance comes from outside, as bytes. The secret has as many
bits as its hash, so that a plain SHA-256 is enough: there is nothing to guess that slow hashing would protect.
"""

import hashlib
import hmac
import re
from datetime import datetime
from typing import Final, NamedTuple

from homeport.core.model.identity import JoinToken
from homeport.errors import InvalidInput

API_PREFIX: Final = "hp"
JOIN_PREFIX: Final = "hpj"
SECRET_BYTES_MIN: Final = 32
ID_BYTES: Final = 6
"""What callers should ask chance for: enough that two tokens of a fleet do not meet."""

_ID = re.compile(r"[0-9a-f]{8,32}", re.ASCII)
_SECRET = re.compile(r"[0-9a-f]{64,128}", re.ASCII)


class NewToken(NamedTuple):
    id: str
    text: str
    """Shown once; whoever has it is believed."""
    hash: str


def new_token(prefix: str, id_bytes: bytes, secret_bytes: bytes) -> NewToken:
    assert len(secret_bytes) >= SECRET_BYTES_MIN, "a token's secret is too short"
    token_id, secret = id_bytes.hex(), secret_bytes.hex()
    assert _ID.fullmatch(token_id), "a token's id needs 4 to 16 bytes"
    return NewToken(token_id, f"{prefix}_{token_id}_{secret}", _hash(secret))


def split(text: str, prefix: str) -> tuple[str, str]:
    """A token's id and the hash of its secret. The text itself is never repeated in the error."""
    found, _, rest = text.strip().partition("_")
    token_id, _, secret = rest.partition("_")
    if found != prefix or not _ID.fullmatch(token_id) or not _SECRET.fullmatch(secret):
        raise InvalidInput(
            f"This is not a token of the form {prefix}_<id>_<secret>.",
            hint="Copy it whole, as it was shown when it was made.",
        )
    return token_id, _hash(secret)


def same(one: str, other: str) -> bool:
    """Compares two hashes in a time that says nothing about where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def refusal(token: JoinToken, secret_hash: str, now: datetime) -> str | None:
    """Why a join token admits nobody; None when it does. Without the secret one learns nothing about the token."""
    if not same(token.hash, secret_hash):
        return "The join token is not valid."
    if token.used_at is not None:
        return f"The join token was used on {token.used_at:%Y-%m-%d %H:%M} UTC; each is good for one machine."
    if now >= token.expires_at:
        return f"The join token expired on {token.expires_at:%Y-%m-%d %H:%M} UTC."
    return None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
