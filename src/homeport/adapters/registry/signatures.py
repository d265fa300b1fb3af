"""Signatures of artifacts as cosign makes them with a key: an artifact beside the signed one, tagged by its digest,
whose payload names that digest. Certificates and transparency logs are not looked at."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from homeport.adapters.registry.oci import OciRegistry
from homeport.core.model.artifact import Artifact, Layer
from homeport.errors import InvalidInput, NotFound, Refused
from homeport.vocabulary import Digest

PAYLOAD_TYPE: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE: Final = "dev.cosignproject.cosign/signature"


def signature_tag(digest: Digest) -> str:
    return digest.replace(":", "-") + ".sig"


async def require_signature(registry: OciRegistry, repository: str, digest: Digest, keys: Sequence[Path]) -> None:
    """Raises Refused unless one of the keys has signed the artifact with this digest."""
    shown = f"{repository.removeprefix('oci://')}@{digest}"
    try:
        artifact = await registry.pull(repository, signature_tag(digest))
    except NotFound as error:
        raise Refused(
            f"{shown} is not signed, and this server takes signed packages only.",
            hint="Sign it with  cosign sign --key , or ask an administrator about --app-key.",
        ) from error
    if not is_signed(artifact, digest, [read_key(path) for path in keys]):
        raise Refused(
            f"{shown} has no signature of a key that this server accepts.",
            hint="An administrator names the keys with --app-key.",
        )


def is_signed(artifact: Artifact, digest: Digest, keys: Sequence[Any]) -> bool:
    return any(
        _names(layer.content, digest) and any(_verifies(layer, key) for key in keys)
        for layer in artifact.layers
        if layer.media_type == PAYLOAD_TYPE
    )


def signs_digest(signature: str, digest: Digest, key: Any) -> bool:
    """Whether the key has signed the file with this SHA-256, as  cosign sign-blob  does: the file itself is not
    needed."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - start-up time
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415

    try:
        content = base64.b64decode(signature.strip(), validate=True)
        hashed = bytes.fromhex(digest.removeprefix("sha256:"))
        key.verify(content, hashed, ec.ECDSA(utils.Prehashed(hashes.SHA256())))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def read_key(path: Path) -> Any:
    """A public key in PEM: ECDSA, as cosign makes them. Raises InvalidInput."""
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - start-up time
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is not a public key in PEM: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidInput(f"{path} is not an ECDSA key.", hint="cosign generate-key-pair  makes one.")
    return key


def fingerprint(key: Any) -> str:
    """The first digits of the SHA-256 of the public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 - start-up time

    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(content).hexdigest()[:12]


def _names(payload: bytes, digest: Digest) -> bool:
    try:
        return bool(json.loads(payload)["critical"]["image"]["docker-manifest-digest"] == digest)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _verifies(layer: Layer, key: Any) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - start-up time
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    try:
        signature = base64.b64decode(layer.annotations.get(SIGNATURE, ""), validate=True)
        key.verify(signature, layer.content, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True
