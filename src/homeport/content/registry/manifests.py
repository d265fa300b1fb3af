"""Parses pushed manifests: image manifests and indexes, OCI's and Docker's (schema 2). An invalid one is refused with
a reason; its dependencies are returned, so that nothing is stored that could not be pulled."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from homeport.content.registry.errors import RegistryProblem, SpecCode
from homeport.content.registry.names import check_digest
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

MANIFEST_BYTES_MAX: Final = 4 * 1024 * 1024
DESCRIPTORS_MAX: Final = 10_000
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
IMAGES: Final = frozenset({OCI_MANIFEST, DOCKER_MANIFEST})
INDEXES: Final = frozenset({OCI_INDEX, DOCKER_INDEX})
_FOREIGN: Final = frozenset(
    {
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
    }
)
"""Foreign layers, which are pulled from elsewhere and may be missing here."""


@dataclass(frozen=True, slots=True)
class OciManifest:
    media_type: str
    blobs: tuple[Digest, ...] = ()
    """Must be in the repository: config and layers."""
    manifests: tuple[Digest, ...] = ()
    """The manifests of an index; each must be in the repository."""
    subject: Digest | None = None
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


def parse_manifest(content: bytes, content_type: str) -> OciManifest:
    """Raises RegistryProblem."""
    document = _document(content)
    declared = document.get("mediaType")
    media_type = content_type.partition(";")[0].strip().lower() or (declared if isinstance(declared, str) else "")
    if declared is not None and declared != media_type:
        raise _invalid(f"its mediaType is {declared!r}, and it was sent as {media_type!r}")
    if document.get("schemaVersion") != 2 or type(document["schemaVersion"]) is not int:
        raise _invalid("its schemaVersion is not 2")
    if media_type in IMAGES:
        return _image(document, media_type)
    if media_type in INDEXES:
        return _index(document, media_type)
    raise _invalid(
        f"{media_type[:100] or 'no media type'!r} is not one of {', '.join(sorted(IMAGES | INDEXES))}; "
        "send one of them as Content-Type"
    )


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _invalid("it is not JSON") from error
    if not isinstance(document, dict):
        raise _invalid("it is not a JSON object")
    return document


def _image(document: Mapping[str, Any], media_type: str) -> OciManifest:
    config, layers = document.get("config") or {}, _listed(document, "layers")
    if "manifests" in document:
        raise _invalid("it has both layers and manifests")
    needed = [_digest(config, "config")]
    for index, layer in enumerate(layers):
        digest = _digest(layer, f"layers[{index}]")
        if layer["mediaType"] not in _FOREIGN:
            needed.append(digest)
    artifact_type = _text(document, "artifactType") or str(config["mediaType"])
    return OciManifest(
        media_type,
        blobs=tuple(dict.fromkeys(needed)),
        subject=_subject(document),
        artifact_type=artifact_type,
        annotations=_annotations(document),
    )


def _index(document: Mapping[str, Any], media_type: str) -> OciManifest:
    listed = _listed(document, "manifests")
    if "layers" in document or "config" in document:
        raise _invalid("it has both manifests and layers")
    found = (_digest(each, f"manifests[{index}]") for index, each in enumerate(listed))
    return OciManifest(
        media_type,
        manifests=tuple(dict.fromkeys(found)),
        subject=_subject(document),
        artifact_type=_text(document, "artifactType"),
        annotations=_annotations(document),
    )


def _listed(document: Mapping[str, Any], name: str) -> Sequence[Any]:
    listed = document.get(name)
    if not isinstance(listed, list):
        raise _invalid(f"{name} is not a list")
    if len(listed) > DESCRIPTORS_MAX:
        raise _invalid(f"{name} has more than {DESCRIPTORS_MAX} entries")
    return listed


def _digest(descriptor: Any, where: str) -> Digest:
    if not isinstance(descriptor, dict):
        raise _invalid(f"{where} is not a descriptor")
    if not isinstance(descriptor.get("mediaType"), str) or not descriptor["mediaType"]:
        raise _invalid(f"{where} has no mediaType")
    size = descriptor.get("size")
    if type(size) is not int or size < 0:
        raise _invalid(f"{where} has no size")
    try:
        return check_digest(str(descriptor.get("digest")))
    except RegistryProblem as problem:
        raise _invalid(f"the digest of {where} cannot be used: {problem}") from problem


def _subject(document: Mapping[str, Any]) -> Digest | None:
    subject = document.get("subject")
    return None if subject is None else _digest(subject, "subject")


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(f"{name} is not text")
    return value or ""


def _annotations(document: Mapping[str, Any]) -> Mapping[str, str]:
    given = document.get("annotations")
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise _invalid("annotations are not a map of texts")
    return given


def _invalid(why: str) -> RegistryProblem:
    return RegistryProblem(SpecCode.MANIFEST_INVALID, f"The manifest is not valid: {why}.")
