"""Authenticates a server by its key before there is a trust bundle: for joining, and for the first bundle.

A pin names the public key of the server itself, or of an authority that the server sends along with its certificate.
Nothing is trusted on first use.
"""

import base64
import binascii
import hmac
import re
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from homeport.adapters.identity.certificates import view
from homeport.adapters.identity.contexts import bare_client, presented_chain
from homeport.core.model.identity import CertificateView
from homeport.errors import InvalidInput, Refused

Check = Callable[[ssl.SSLObject | ssl.SSLSocket], None]


def pin_of(spki: str) -> str:
    return f"sha256:{spki}"


def parse_pin(pin: str) -> str:
    """The SHA-256 of a SubjectPublicKeyInfo in hex, from `sha256:<hex>` or `sha256:<base64>` (Margo's way)."""
    kind, _, value = pin.strip().partition(":")
    if kind == "sha256" and re.fullmatch(r"[0-9a-fA-F]{64}", value):
        return value.lower()
    try:
        raw = base64.b64decode(value, validate=True) if kind == "sha256" else b""
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise InvalidInput(
            "The pin is not of the form sha256:<64 hex digits>.", hint="Copy all of it from the join command."
        )
    return raw.hex()


def pinned_context(pin: str) -> tuple[ssl.SSLContext, Check]:
    """A client context, and the check to call on a new connection before the first byte is sent."""
    wanted = parse_pin(pin)
    context = bare_client()
    context.verify_mode = ssl.CERT_NONE  # the handshake still proves the key; the check below compares it

    def check(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> None:
        chain = presented_chain(ssl_object)
        try:
            known = _leads_to(chain, wanted, datetime.now(UTC))
        except (InvalidInput, ValueError, TypeError):
            known = False
        if not known:
            raise Refused(
                "The server's key does not match the pin.",
                hint="Make a new join command at central, or check which server answers at this address.",
            )

    return context, check


def _leads_to(chain: Sequence[bytes], wanted: str, now: datetime) -> bool:
    """Whether the leaf has the key, or chains by valid signatures to an authority that has it."""
    views = [view(der) for der in chain]
    if not views:
        return False
    if hmac.compare_digest(views[0].spki, wanted):
        return True
    for below, above, seen in zip(chain, chain[1:], views[1:], strict=False):
        if not seen.is_ca or not _signed(below, above):
            return False
        if hmac.compare_digest(seen.spki, wanted):
            return all(_in_time(each, now) for each in views)
    return False


def _signed(below: bytes, above: bytes) -> bool:
    try:
        x509.load_der_x509_certificate(below).verify_directly_issued_by(x509.load_der_x509_certificate(above))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _in_time(certificate: CertificateView, now: datetime) -> bool:
    return certificate.not_before <= now <= certificate.not_after
