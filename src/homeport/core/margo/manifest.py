"""The State Manifest: how it is written, read and checked.

Its bytes are RFC 8785 (JCS): the ETag is a digest of them, so the same desired state must give the same bytes. All
its keys are ASCII and all its numbers integers, for which sorted keys without spaces are that form.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.core.margo.text import UUID_PATTERN
from homeport.core.values.json_values import RepeatedKey, object_of
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, Digest

MANIFEST_TYPE: Final = "application/vnd.margo.manifest.v1+json"
BUNDLE_TYPE: Final = "application/vnd.margo.bundle.v1+tar+gzip"
YAML_TYPE: Final = "application/yaml"
VERSION_MAX: Final = 2**64 - 1
EXACT_MAX: Final = 2**53
"""Up to here a number with a point is exactly one whole number."""
MANIFEST_BYTES_MAX: Final = 8 * 1024 * 1024
DEPLOYMENTS_MAX: Final = 20_000
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_UUID: Final = re.compile(UUID_PATTERN)
_PATH_SEGMENT: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._~-]{1,200}")


@dataclass(frozen=True, slots=True)
class ManifestDeployment:
    """One deployment of a manifest."""

    deployment_id: DeploymentId
    digest: Digest
    size_bytes: int | None = None
    """Advisory; never a proof of anything."""
    announced_as: str = ""
    """The id as a manager has written it, where that is not a UUID in small letters: its paths have it so."""

    @property
    def url(self) -> str:
        return deployment_url(self.announced_as or self.deployment_id, self.digest)


@dataclass(frozen=True, slots=True)
class Manifest:
    version: int
    deployments: tuple[ManifestDeployment, ...]
    bundle: Digest | None = None
    bundle_bytes: int | None = None


def digest_of(content: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def etag_of(digest: str) -> str:
    """Strong, and quoted."""
    return f'"{digest}"'


def deployment_url(deployment_id: str, digest: str) -> str:
    return f"/api/v1/deployments/{deployment_id}/{digest}"


def bundle_url(digest: str) -> str:
    return f"/api/v1/bundles/{digest}"


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def render(manifest: Manifest) -> bytes:
    deployments = [
        {
            "deploymentId": each.deployment_id,
            "digest": each.digest,
            "url": each.url,
            **({} if each.size_bytes is None else {"sizeBytes": each.size_bytes}),
        }
        for each in sorted(manifest.deployments, key=lambda each: each.deployment_id)
    ]
    return canonical({"bundle": _bundle(manifest), "deployments": deployments, "manifestVersion": manifest.version})


def parse(body: bytes) -> Manifest:
    """Raises InvalidInput for anything that is not exactly a manifest: then none of it is used."""
    if len(body) > MANIFEST_BYTES_MAX:
        raise InvalidInput(f"The manifest is larger than {MANIFEST_BYTES_MAX // 2**20} MiB.")
    try:
        # JSON is UTF-8; what Python guesses from other bytes is not what was hashed for.
        data = json.loads(body.decode(), object_pairs_hook=object_of)
    except RepeatedKey as error:
        raise InvalidInput(f"The manifest {error}.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The manifest is not JSON.") from error
    if not isinstance(data, dict):
        raise InvalidInput("The manifest is not an object.")
    version = _whole(data.get("manifestVersion"))
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= VERSION_MAX:
        raise InvalidInput("manifestVersion is not a whole number from 1 to 2^64-1.")
    if "bundle" not in data or not isinstance(data.get("deployments"), list):
        raise InvalidInput("The manifest lacks bundle or deployments.")
    if len(data["deployments"]) > DEPLOYMENTS_MAX:
        raise InvalidInput(f"The manifest lists more than {DEPLOYMENTS_MAX} deployments.")
    deployments = tuple(_listed(each) for each in data["deployments"])
    if len({each.deployment_id for each in deployments}) != len(deployments):
        raise InvalidInput("The manifest lists a deployment twice.")
    bundle, size = _read_bundle(data["bundle"])
    if (bundle is None) != (not deployments):
        raise InvalidInput("bundle must be null exactly where there are no deployments.")
    return Manifest(version, deployments, bundle, size)


def next_version(before: int | None, *, now_ms: int) -> int:
    """1 for a client's first manifest. Later ones follow the clock: a manager whose database was lost, or restored
    from an older copy, continues above every version that it ever served."""
    return 1 if before is None else max(before + 1, now_ms)


def _bundle(manifest: Manifest) -> Mapping[str, Any] | None:
    if manifest.bundle is None:
        return None
    found: dict[str, Any] = {
        "digest": manifest.bundle,
        "mediaType": BUNDLE_TYPE,
        "url": bundle_url(manifest.bundle),
    }
    return found if manifest.bundle_bytes is None else {**found, "sizeBytes": manifest.bundle_bytes}


def _listed(data: Any) -> ManifestDeployment:
    if not isinstance(data, dict) or not isinstance(data.get("deploymentId"), str):
        raise InvalidInput("A deployment of the manifest has no deploymentId.")
    deployment_id, digest = data["deploymentId"], _digest(data)
    if not _PATH_SEGMENT.fullmatch(deployment_id):
        raise InvalidInput(f"deploymentId {deployment_id[:80]!r} cannot be a part of a path.")
    _check_url(data, deployment_url(deployment_id, digest))
    known_as = known_id(deployment_id)
    return ManifestDeployment(known_as, digest, _size(data), "" if known_as == deployment_id else deployment_id)


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def known_id(announced: str) -> DeploymentId:
    """What a deployment is called here: a UUID in small letters. The contract takes any text for an id in a manifest,
    and demands a UUID of the file only; so one that is none is this deployment's own fault."""
    if is_uuid(announced):
        return DeploymentId(announced.lower())
    digits = hashlib.sha256(announced.encode(errors="surrogatepass")).hexdigest()
    # Version 8 of RFC 9562: of our own making, and the same for the same text.
    return DeploymentId(f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}")


def _whole(value: Any) -> Any:
    """7.0 is the same number as 7, and JSON knows only one kind of them."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT_MAX else value


def _read_bundle(data: Any) -> tuple[Digest | None, int | None]:
    if data is None:
        return None, None
    if not isinstance(data, dict) or data.get("mediaType") != BUNDLE_TYPE:
        raise InvalidInput(f"The bundle is not of the type {BUNDLE_TYPE}.")
    digest = _digest(data)
    _check_url(data, bundle_url(digest))
    return digest, _size(data)


def _digest(data: Mapping[str, Any]) -> Digest:
    digest = data.get("digest")
    if not isinstance(digest, str) or not is_digest(digest):
        raise InvalidInput(f"{str(digest)[:80]!r} is not a sha256 digest; the whole manifest is refused.")
    return Digest(digest)


def _size(data: Mapping[str, Any]) -> int | None:
    size = data.get("sizeBytes")
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def _check_url(data: Mapping[str, Any], expected: str) -> None:
    if data.get("url") != expected:
        raise InvalidInput(f"The url {str(data.get('url'))[:200]!r} is not {expected}.")


def versions_kept(before: Sequence[int], version: int, *, keep: int) -> tuple[int, ...]:
    """The versions whose artifacts stay fetchable after a new manifest."""
    return (version, *before)[:keep]
