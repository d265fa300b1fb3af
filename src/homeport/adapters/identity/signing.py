"""The signing steps that all authorities share."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509

from homeport.adapters.identity.certificates import Signer, sign_leaf, to_pem
from homeport.adapters.identity.keys import PrivateKey, csr_key
from homeport.core.model.identity import Issued
from homeport.errors import InvalidInput, Refused


def issue_leaf(
    signer: Signer,
    intermediates: Sequence[x509.Certificate],
    csr: bytes,
    *,
    spiffe_id: str,
    dns_names: Sequence[str],
    lifetime_seconds: float,
    now: datetime,
) -> Issued:
    check_alive(signer, now)
    leaf = sign_leaf(
        csr_key(csr),
        signer,
        common_name=spiffe_id.rpartition("/")[2],
        uri=spiffe_id,
        dns_names=dns_names,
        lifetime=lifetime_of(lifetime_seconds),
        now=now,
    )
    return Issued(to_pem(leaf, *intermediates), leaf.not_valid_after_utc)


def check_alive(signer: Signer, now: datetime) -> None:
    """Certificates signed by an expired authority are worthless; refuse instead of issuing them."""
    end = signer.certificate.not_valid_after_utc
    if now >= end:
        raise Refused(f"The authority expired on {end:%Y-%m-%d %H:%M} UTC and cannot sign until it is renewed.")


def lifetime_of(seconds: float) -> timedelta:
    if not 1 <= seconds <= 100 * 365 * 86400:
        raise InvalidInput(f"A certificate cannot live for {seconds:g} seconds.", hint="Ask for one second or more.")
    return timedelta(seconds=seconds)


def signer_of(key: PrivateKey, certificate: x509.Certificate, where: str) -> Signer:
    if certificate.public_key() != key.public_key():
        raise InvalidInput(
            f"The certificate and the key in {where} do not belong together.", hint="Restore both from one backup."
        )
    return Signer(key, certificate)
