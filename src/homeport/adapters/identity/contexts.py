"""The TLS contexts of all our links, and access to the chain that the TLS layer has verified."""

import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from cryptography import x509

NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, missing in `ssl`: validity periods are checked by `core.identity.rules`."""

_ENCODING_DER: Final = 2


def bare_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # no session resumption: it would prolong what a full handshake proved
    return _strict(context)


def bare_client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # identity is the SPIFFE ID, which is checked after the handshake
    return _strict(context)


def _strict(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
    return context


def show_chain(context: ssl.SSLContext, chain_pem: bytes, key_pem: bytes) -> None:
    """Presents this certificate in new handshakes. Given as bytes: externally managed files may be replaced one by
    one while OpenSSL reads them, and a context with only one half of a pair presents nothing at all."""
    with _private_file(chain_pem + b"\n" + key_pem) as path:
        context.load_cert_chain(path)


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """OpenSSL only takes a file name; the file is in memory where the system supports that."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("homeport-svid", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def add_anchors(context: ssl.SSLContext, anchors: Iterable[bytes]) -> None:
    """Adds trusted anchors to the context; they cannot be removed. An intermediate may be an anchor too."""
    for der in anchors:
        certificate = x509.load_der_x509_certificate(der)
        if certificate.subject != certificate.issuer:
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=der)


def verified_chain(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> list[bytes] | None:
    """The chain that OpenSSL has verified, DER, leaf first; None when the peer presented no certificate.

    Python has a public call for this from 3.13 on; until then the private one is the only way to learn which anchor a
    certificate led to. Nothing else uses it.
    """
    if ssl_object.getpeercert(binary_form=True) is None:
        return None
    return _chain(ssl_object, "get_verified_chain")


def presented_chain(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> list[bytes]:
    """The chain that the peer sent, not verified."""
    return _chain(ssl_object, "get_unverified_chain")


def _chain(ssl_object: Any, call: str) -> list[bytes]:
    public = getattr(ssl_object, call, None)
    found = public() if public is not None else getattr(ssl_object._sslobj, call)()
    return [each if isinstance(each, bytes) else each.public_bytes(_ENCODING_DER) for each in found or ()]
