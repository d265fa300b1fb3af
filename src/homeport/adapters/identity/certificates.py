"""Reading and signing certificates: the view that the rules need, and the three kinds that we issue."""

import hashlib
import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from homeport.adapters.identity.keys import NAME_LENGTH_MAX, PrivateKey, PublicKey, describe_key, signature_hash
from homeport.core.model.identity import CertificateView
from homeport.core.values.addresses import is_host
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

BACKDATE_SECONDS: Final = 3600.0
"""By how much `notBefore` precedes now: the clock of a verifier may be behind. Small machines without a clock
battery are behind by minutes; one that is wrong by an hour has the wrong summer time."""
_BACKDATE_FRACTION: Final = 0.1
"""For short-lived certificates only this share is backdated, else half of the lifetime would already be over."""


_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True)
class Signer:
    key: PrivateKey
    certificate: x509.Certificate


VIEWS_MAX: Final = 16_384
"""Of ten thousand machines that reconnect at once each is known already: reading a certificate takes a tenth of a
millisecond, and 1.5 kB are kept of it."""


@lru_cache(maxsize=VIEWS_MAX)
def view(der: bytes) -> CertificateView:
    """InvalidInput for an invalid certificate, or one with contradictory fields."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        extensions = certificate.extensions
        kind, bits = describe_key(certificate.public_key())
    except _UNREADABLE as error:
        raise InvalidInput("A certificate cannot be read.") from error
    names: tuple[str, ...] = ()
    is_ca = signs = False
    for extension in extensions:
        match extension.value:
            case x509.SubjectAlternativeName() as sans:
                names = tuple(sans.get_values_for_type(x509.UniformResourceIdentifier))
            case x509.BasicConstraints() as constraints:
                is_ca = constraints.ca
            case x509.KeyUsage() as usage:
                signs = usage.key_cert_sign or usage.crl_sign
    return CertificateView(
        uri_sans=names,
        is_ca=is_ca,
        signs_certificates=signs,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        key_kind=kind,
        key_bits=bits,
        fingerprint=fingerprint(der),
        spki=hashlib.sha256(_spki(certificate)).hexdigest(),
    )


def fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


def read_chain(pem: bytes, whose: str = "The chain") -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{whose} holds no certificates in PEM form.") from error


def to_der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def to_pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def sign_root(key: PrivateKey, *, common_name: str, uri: str, lifetime: timedelta, now: datetime) -> x509.Certificate:
    builder = _builder(key.public_key(), common_name=common_name, uri=uri, lifetime=lifetime, now=now, signer=None)
    return _as_authority(builder, path_length=1).sign(key, signature_hash(key))


def sign_intermediate(
    public: PublicKey, signer: Signer, *, common_name: str, uri: str, lifetime: timedelta, now: datetime
) -> x509.Certificate:
    builder = _builder(public, common_name=common_name, uri=uri, lifetime=lifetime, now=now, signer=signer)
    return _as_authority(builder, path_length=0).sign(signer.key, signature_hash(signer.key))


def sign_leaf(
    public: PublicKey,
    signer: Signer,
    *,
    common_name: str,
    uri: str,
    dns_names: Sequence[str],
    lifetime: timedelta,
    now: datetime,
) -> x509.Certificate:
    builder = _builder(
        public, common_name=common_name, uri=uri, dns_names=dns_names, lifetime=lifetime, now=now, signer=signer
    )
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(both, critical=False)
        .sign(signer.key, signature_hash(signer.key))
    )


def _builder(
    public: PublicKey,
    *,
    common_name: str,
    uri: str,
    dns_names: Sequence[str] = (),
    lifetime: timedelta,
    now: datetime,
    signer: Signer | None,
) -> x509.CertificateBuilder:
    """The common part of all kinds. None outlives its signer, because verifiers would reject it."""
    now = now.replace(microsecond=0)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:NAME_LENGTH_MAX])])
    end = now + lifetime
    if signer is not None:
        end = min(end, signer.certificate.not_valid_after_utc)
    backdate = min(timedelta(seconds=BACKDATE_SECONDS), lifetime * _BACKDATE_FRACTION)
    authority_key = signer.certificate.public_key() if signer is not None else public
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri), *map(_host, dns_names)]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if signer is None else signer.certificate.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before((now - backdate).replace(microsecond=0))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(_authority_key_id(authority_key), critical=False)
    )


def _as_authority(builder: x509.CertificateBuilder, *, path_length: int) -> x509.CertificateBuilder:
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    return builder.add_extension(constraints, critical=True).add_extension(_usage(signs=True), critical=True)


def _authority_key_id(key: object) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)  # type: ignore[arg-type]


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    """How users reach a server: a DNS name or an address. It has no part in the server's identity."""
    if not is_host(name):
        raise InvalidInput(f"{name!r} is neither a DNS name nor an address.")
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _spki(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
