"""The three files for a third-party Margo client."""

import base64
from pathlib import Path

from homeport.adapters.identity.files import PRIVATE, PUBLIC, write_whole
from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.core.model.identity import TrustBundle
from homeport.errors import HomeportError


def fresh_request(name: str) -> tuple[bytes, str]:
    key = new_key()
    return key_pem(key), make_csr(key, name).decode()


def anchors_pem(bundle: TrustBundle) -> bytes:
    return b"".join(
        b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(anchor) + b"-----END CERTIFICATE-----\n"
        for anchor in bundle.anchors
    )


def write_files(folder: Path, *, key: bytes, chain: bytes, anchors: bytes) -> None:
    try:
        write_whole(folder / "svid-key.pem", key, mode=PRIVATE)
        write_whole(folder / "svid-cert.pem", chain, mode=PUBLIC)
        write_whole(folder / "svid-ca.pem", anchors, mode=PUBLIC)
    except OSError as error:
        raise HomeportError(
            f"Cannot write to {folder}: {error.strerror}.", hint="Choose another folder with --out."
        ) from error
