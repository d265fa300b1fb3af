"""The client's side of the Desired State API: whether a manifest is believed, what has to be fetched for it, and
whether what came is what was announced. Nothing of an update is used unless all of it is right."""

import re
from collections.abc import Mapping
from typing import Final

from homeport.core.margo.manifest import (
    MANIFEST_TYPE,
    Manifest,
    ManifestDeployment,
    digest_of,
    etag_of,
    is_digest,
    parse,
)
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, Digest

_ETAG: Final = re.compile(r'(W/)?"?[!#-~]{1,200}"?')
SINGLES_MAX = 8
"""Up to so many changed deployments are fetched one by one, more as the bundle."""


class UpdateRejected(InvalidInput):
    """The manifest or an artifact of it is not what it should be; everything stays as it is."""

    code = "margo-update-rejected"


@dataclass(frozen=True, slots=True)
class Adopted:
    """What the client has stored durably of the manifest that it follows."""

    version: int = 0
    """0 before the first."""
    etag: str = ""
    """As it was sent; where none was, or one that no request could carry, what it should have been."""
    digest: str = ""
    """Of its bytes. Empty where it was adopted by a release that went by the ETag."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is missing for an update."""

    bundle: Digest | None
    """The bundle, instead of single files."""
    singles: tuple[ManifestDeployment, ...] = ()


def judge(body: bytes, etag: str, adopted: Adopted, *, media_type: str = MANIFEST_TYPE) -> Manifest:
    """The manifest of an answer. Raises UpdateRejected."""
    if media_type != MANIFEST_TYPE:
        raise UpdateRejected(f'The manifest came as "{media_type[:100]}", not as {MANIFEST_TYPE}.')
    # Any other text is a manager's own way to name a version, or what a proxy has made of it: sent back, not judged.
    if is_digest(tag := _tag(etag)) and tag != digest_of(body):
        raise UpdateRejected(f"The manifest does not match its ETag {etag[:100]}.")
    try:
        manifest = parse(body)
    except InvalidInput as error:
        raise UpdateRejected(str(error)) from error
    if manifest.version <= adopted.version:
        raise UpdateRejected(
            f"Manifest {manifest.version} is not newer than {adopted.version}, which is adopted: it was replayed,"
            f" or the fleet manager lost its state. If it did, start the site with --wfm-forget {adopted.version};"
            " where it has that already, it was used before: start it once without."
        )
    return manifest


def is_adopted(body: bytes, adopted: Adopted) -> bool:
    """Whether these are the bytes that are adopted already. A manager that knows no conditions, or sends no ETag,
    sends them again and again: nothing is new, and nothing is replayed."""
    return (adopted.digest or _tag(adopted.etag)) == digest_of(body)


def adopted_of(manifest: Manifest, body: bytes, etag: str) -> Adopted:
    digest = digest_of(body)
    return Adopted(manifest.version, etag if _ETAG.fullmatch(etag) else etag_of(digest), digest)


def missing(manifest: Manifest, have: Mapping[DeploymentId, Digest]) -> Fetch:
    """`have` are the digests of the files that the client has. The first sync, and a large one, take the bundle."""
    changed = tuple(each for each in manifest.deployments if have.get(each.deployment_id) != each.digest)
    if manifest.bundle is not None and (not have or len(changed) > SINGLES_MAX):
        return Fetch(manifest.bundle)
    return Fetch(None, changed)


def _tag(etag: str) -> str:
    """Without quotes it is not an ETag, and some send it so; what it says is looked at all the same."""
    return etag.removeprefix("W/").strip('"')


def verified(content: bytes, digest: Digest, what: str) -> bytes:
    """Raises UpdateRejected. Its size proves nothing and is not checked."""
    found = digest_of(content)
    if found != digest:
        raise UpdateRejected(f"{what} has the digest {found}, and {digest} was announced.")
    return content
