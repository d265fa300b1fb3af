"""The trust bundle in SPIFFE's format: a JWK set with one key per anchor.

Unknown fields are ignored. A bundle without any anchor is refused, so that the previous one stays in use.
"""

import base64
import binascii
import json
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from homeport.adapters.identity.certificates import view
from homeport.core.model.identity import TrustBundle
from homeport.errors import InvalidInput

REFRESH_HINT_SECONDS: Final = 300
"""Used where a bundle has no refresh hint."""
SIZE_MAX: Final = 1 << 20
ANCHORS_MAX: Final = 64

_CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


def encode(bundle: TrustBundle) -> bytes:
    document = {
        "spiffe_sequence": bundle.sequence,
        "spiffe_refresh_hint": bundle.refresh_hint_seconds,
        "keys": [_jwk(anchor) for anchor in bundle.anchors],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def decode(content: bytes, domain: str) -> TrustBundle:
    if len(content) > SIZE_MAX:
        raise InvalidInput("The trust bundle is too large.")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The trust bundle is not JSON.") from error
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise InvalidInput("The trust bundle has no list of keys.")
    wanted = [key for key in keys if isinstance(key, dict) and key.get("use") == "x509-svid"]
    if not 0 < len(wanted) <= ANCHORS_MAX:
        raise InvalidInput(
            "The trust bundle has no X.509 anchor." if not wanted else "The trust bundle has too many anchors.",
            hint="The bundle in use stays in force; check the server that sent the new one.",
        )
    return TrustBundle(
        domain=domain,
        sequence=_count(document, "spiffe_sequence", 0),
        refresh_hint_seconds=_count(document, "spiffe_refresh_hint", REFRESH_HINT_SECONDS),
        anchors=tuple(dict.fromkeys(_anchor(key) for key in wanted)),
    )


def _anchor(key: dict[str, Any]) -> bytes:
    """SPIFFE allows exactly one certificate per key; only the first is read."""
    chain = key.get("x5c")
    if not isinstance(chain, list) or not chain or not isinstance(chain[0], str):
        raise InvalidInput("A key of the trust bundle has no certificate (x5c).")
    try:
        der = base64.b64decode(chain[0], validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("A certificate of the trust bundle is not in base64.") from error
    if not view(der).is_ca:
        raise InvalidInput("A certificate of the trust bundle is not that of an authority.")
    return der


def _count(document: dict[str, Any], field: str, default: int) -> int:
    value = document.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"{field} of the trust bundle is not a whole number.")
    return value


def _jwk(der: bytes) -> dict[str, Any]:
    try:
        key = x509.load_der_x509_certificate(der).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput("An anchor of the trust bundle cannot be read.") from error
    return {"use": "x509-svid", **_parameters(key), "x5c": [base64.b64encode(der).decode()]}


def _parameters(key: object) -> dict[str, str]:
    match key:
        case ec.EllipticCurvePublicKey():
            numbers, size = key.public_numbers(), (key.curve.key_size + 7) // 8
            curve = _CURVES.get(key.curve.name, key.curve.name)
            return {"kty": "EC", "crv": curve, "x": _number(numbers.x, size), "y": _number(numbers.y, size)}
        case rsa.RSAPublicKey():
            public = key.public_numbers()
            return {"kty": "RSA", "n": _number(public.n), "e": _number(public.e)}
        case ed25519.Ed25519PublicKey():
            raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
            return {"kty": "OKP", "crv": "Ed25519", "x": _text(raw)}
    raise InvalidInput("An anchor of the trust bundle has a key that is not accepted.")


def _number(value: int, size: int | None = None) -> str:
    return _text(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
