"""Tokens that are shown once and stored as a hash: `hp_<id>_<secret>` for people, `hpj_<id>_<secret>` for joining.

The id finds the record, the secret authenticates the holder. The caller passes random bytes. The secret has as many
bits as its hash, so a plain SHA-256 is enough: there is no weak password that slow hashing would protect.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from homeport.core.model.identity import JoinToken
from homeport.errors import InvalidInput

API_PREFIX: Final = "hp"
JOIN_PREFIX: Final = "hpj"
SECRET_BYTES_MIN: Final = 32
ID_BYTES: Final = 6
"""Random bytes for an id: enough that two tokens of a fleet do not collide."""

_ID = re.compile(r"[0-9a-f]{8,32}", re.ASCII)
_SECRET = re.compile(r"[0-9a-f]{64,128}", re.ASCII)


class NewToken(NamedTuple):
    id: str
    text: str
    """Shown once; every holder of it is authenticated."""
    hash: str


def new_token(prefix: str, id_bytes: bytes, secret_bytes: bytes) -> NewToken:
    assert len(secret_bytes) >= SECRET_BYTES_MIN, "a token's secret is too short"
    token_id, secret = id_bytes.hex(), secret_bytes.hex()
    assert _ID.fullmatch(token_id), "a token's id needs 4 to 16 bytes"
    return NewToken(token_id, f"{prefix}_{token_id}_{secret}", _hash(secret))


def split(text: str, prefix: str) -> tuple[str, str]:
    """A token's id and the hash of its secret. Errors never quote the token."""
    found, _, rest = text.strip().partition("_")
    token_id, _, secret = rest.partition("_")
    if found != prefix or not _ID.fullmatch(token_id) or not _SECRET.fullmatch(secret):
        raise InvalidInput(
            f"This is not a token of the form {prefix}_<id>_<secret>.",
            hint="Copy it whole, as it was shown when it was made.",
        )
    return token_id, _hash(secret)


def same(one: str, other: str) -> bool:
    """Compares two hashes in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def refusal(token: JoinToken, secret_hash: str, now: datetime) -> str | None:
    """Why a join token is refused; None when it is valid. Without the secret nothing is revealed about the token."""
    if not same(token.hash, secret_hash):
        return "The join token is not valid."
    if token.used_at is not None:
        return f"The join token was used on {token.used_at:%Y-%m-%d %H:%M} UTC; each is good for one machine."
    if now >= token.expires_at:
        return f"The join token expired on {token.expires_at:%Y-%m-%d %H:%M} UTC."
    return None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def reach_mark(reach: Mapping[str, str]) -> str:
    """What a site writes into the request that it signs with its key, so that the addresses beside it are its own."""
    return "reach " + hashlib.sha256(json.dumps(dict(reach), sort_keys=True).encode()).hexdigest()[:48]
