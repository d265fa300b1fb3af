"""Private keys and certificate requests. A key never leaves the machine that created it."""

import hashlib
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from homeport.adapters.identity.files import PRIVATE, read_private, write_whole
from homeport.core.identity.rules import KEY_BITS_MIN
from homeport.errors import InvalidInput

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey

REQUEST_SIZE_MAX: Final = 1 << 16
NAME_LENGTH_MAX: Final = 64
"""The maximum length of a common name in X.509."""

_CURVES: Final = {"secp256r1": "ec-p256", "secp384r1": "ec-p384"}


def load_or_create_key(path: Path) -> PrivateKey:
    """A new key is ECDSA P-256."""
    if path.exists():
        return load_key(path)
    key = new_key()
    write_whole(path, key_pem(key), mode=PRIVATE)
    return key


def load_key(path: Path) -> PrivateKey:
    content = read_private(path)
    try:
        key = serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput(
            f"{path} holds no private key that can be read.", hint="It must be PEM without a passphrase."
        ) from error
    check_key(key.public_key(), str(path))
    assert isinstance(key, PrivateKey)
    return key


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_csr(key: PrivateKey, common_name: str) -> bytes:
    """PEM. The common name is informational; the issuer decides the identity."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:NAME_LENGTH_MAX] or "-")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, signature_hash(key))
    return request.public_bytes(serialization.Encoding.PEM)


def csr_spki(csr: bytes) -> str:
    """The key that signed a request, as the SHA-256 of its SubjectPublicKeyInfo."""
    return spki_of(csr_key(csr))


def csr_name(csr: bytes) -> str:
    """The common name of a request whose signature was checked; empty where it has none."""
    try:
        request = x509.load_pem_x509_csr(csr) if b"-----BEGIN" in csr else x509.load_der_x509_csr(csr)
        found = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return ""
    return str(found[0].value) if found else ""


def csr_key(csr: bytes) -> PublicKey:
    """The key that signed a request (PEM or DER); InvalidInput for one without a valid signature."""
    if len(csr) > REQUEST_SIZE_MAX:
        raise InvalidInput("The certificate request is too large.")
    try:
        pem = b"-----BEGIN" in csr
        request = x509.load_pem_x509_csr(csr) if pem else x509.load_der_x509_csr(csr)
        key = request.public_key()
        valid = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise InvalidInput(
            "This is not a certificate request.", hint="Send a PKCS #10 request, PEM or DER."
        ) from error
    if not valid:
        raise InvalidInput("The certificate request is not signed by the key it asks for.")
    return check_key(key, "The certificate request")


def check_key(key: object, whose: str) -> PublicKey:
    """Accepts what Margo accepts: P-256, P-384, Ed25519, and RSA of 3072 bits or more."""
    kind, bits = describe_key(key)
    if bits < KEY_BITS_MIN.get(kind, bits + 1):
        raise InvalidInput(
            f"{whose} has a key that is not accepted ({kind}, {bits} bits).",
            hint="Use ECDSA P-256 (or P-384, Ed25519, or RSA of at least 3072 bits).",
        )
    assert isinstance(key, PublicKey)
    return key


def describe_key(key: object) -> tuple[str, int]:
    """Kind and bits, in the terms of `CertificateView`."""
    match key:
        case ec.EllipticCurvePublicKey():
            return _CURVES.get(key.curve.name, f"ec-{key.curve.name}"), key.curve.key_size
        case ed25519.Ed25519PublicKey():
            return "ed25519", 256
        case rsa.RSAPublicKey():
            return "rsa", key.key_size
    return type(key).__name__.removesuffix("PublicKey").lower(), 0


def spki_of(key: PublicKey) -> str:
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def signature_hash(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384 | None:
    """The signature hash for a key; Ed25519 has its own."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size > 256:
        return hashes.SHA384()
    return hashes.SHA256()
