"""Artifacts in any OCI registry, over the distribution API.

Nothing is believed: what is pulled is checked against size and digest before it is handed on, and bounded before
it is read. The requests block, so they run in a worker thread.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import anyio.to_thread

from homeport.adapters.registry.reference import Reference, parse_reference
from homeport.adapters.registry.transport import TIMEOUT_SECONDS, Answer, Connection, Torn
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import InvalidInput, PeerUnavailable, TooLarge
from homeport.ports import Artifact, Layer
from homeport.vocabulary import Digest

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
EMPTY_TYPE: Final = "application/vnd.oci.empty.v1+json"
EMPTY_CONFIG: Final = b"{}"
MANIFEST_SIZE_MAX: Final = 4 * 2**20
ARTIFACT_SIZE_MAX: Final = 64 * 2**20
LAYER_COUNT_MAX: Final = 200
RESUMES_MAX: Final = 8
"""How often a layer whose line broke is taken up where it broke; after that it is for the caller to try again."""


@dataclass(frozen=True, slots=True)
class OciRegistry:
    """Implements `ports.Registry`."""

    auth_files: Sequence[Path] = ()
    """Where to look for credentials; see `credentials.default_auth_files`."""
    plain_http_hosts: frozenset[str] = frozenset()
    """Hosts (with port) that are spoken to without TLS, beside those on loopback."""
    timeout_seconds: float = TIMEOUT_SECONDS

    async def pull(self, repository: str, tag: str) -> Artifact:
        reference = parse_reference(repository, tag)
        work = partial(_pull, self._connection(reference, "pull"))
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    async def push(self, repository: str, tag: str, artifact: Artifact) -> Digest:
        reference = parse_reference(repository, tag)
        work = partial(_push, self._connection(reference, "pull,push"), artifact)
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    def _connection(self, reference: Reference, scope: str) -> Connection:
        return Connection(reference, scope, self.auth_files, self.plain_http_hosts, self.timeout_seconds)


def render_manifest(artifact: Artifact) -> bytes:
    """The same artifact has the same manifest, and so the same digest, in every registry."""
    empty = {"mediaType": EMPTY_TYPE, "digest": digest_of_bytes(EMPTY_CONFIG), "size": 2, "data": "e30="}
    kind = {"artifactType": artifact.artifact_type, "config": empty}
    if artifact.config is not None:
        kind = {"config": _descriptor(artifact.config)}
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        **kind,
        "layers": [_descriptor(layer) for layer in artifact.layers],
    }
    if artifact.annotations:
        manifest["annotations"] = dict(artifact.annotations)
    return json.dumps(manifest, indent=2, ensure_ascii=False).encode()


def _descriptor(layer: Layer) -> dict[str, Any]:
    descriptor = {
        "mediaType": layer.media_type,
        "digest": digest_of_bytes(layer.content),
        "size": len(layer.content),
    }
    return descriptor | ({"annotations": dict(layer.annotations)} if layer.annotations else {})


def _push(connection: Connection, artifact: Artifact) -> Digest:
    config = artifact.config.content if artifact.config is not None else EMPTY_CONFIG
    for content in dict.fromkeys((config, *(layer.content for layer in artifact.layers))):
        _push_blob(connection, content)
    manifest = render_manifest(artifact)
    headers = {"Content-Type": MANIFEST_TYPE}
    url = f"manifests/{connection.reference.tag}"
    connection.request("PUT", url, body=manifest, headers=headers, expect=(200, 201, 202))
    return digest_of_bytes(manifest)


def _push_blob(connection: Connection, content: bytes) -> None:
    digest = digest_of_bytes(content)
    if connection.request("HEAD", f"blobs/{digest}", expect=(200, 404)).status == 200:
        return
    begun = connection.request("POST", "blobs/uploads/", body=b"", expect=(202,))
    location = begun.headers.get("location", "")
    location += ("&" if "?" in location else "?") + urlencode({"digest": digest})
    headers = {"Content-Type": "application/octet-stream"}
    connection.request("PUT", location, body=content, headers=headers, expect=(201,))


def _pull(connection: Connection) -> Artifact:
    tag = connection.reference.tag
    answer = connection.request(
        "GET", f"manifests/{tag}", headers={"Accept": MANIFEST_TYPE}, size_max=MANIFEST_SIZE_MAX
    )
    promised = tag if ":" in tag else answer.headers.get("docker-content-digest")
    if promised is not None and promised.startswith("sha256:"):
        _check_digest(answer.body, promised, f"The manifest of {connection.reference}")
    manifest = _manifest(answer, connection.reference)
    descriptors = manifest["layers"]
    if len(descriptors) > LAYER_COUNT_MAX or sum(each["size"] for each in descriptors) > ARTIFACT_SIZE_MAX:
        raise TooLarge(
            f"{connection.reference} is larger than the {ARTIFACT_SIZE_MAX // 2**20} MiB that are accepted."
        )
    return Artifact(
        artifact_type=str(manifest.get("artifactType") or (manifest.get("config") or {}).get("mediaType") or ""),
        layers=tuple(_layer(connection, each) for each in descriptors),
        annotations=manifest.get("annotations") or {},
    )


def _layer(connection: Connection, descriptor: Mapping[str, Any]) -> Layer:
    digest, size = descriptor["digest"], descriptor["size"]
    content = _blob(connection, digest, size)
    if len(content) != size:
        raise InvalidInput(f"A layer of {connection.reference} has {len(content)} bytes where {size} were promised.")
    _check_digest(content, digest, f"A layer of {connection.reference}")
    return Layer(descriptor["mediaType"], content, descriptor.get("annotations") or {})


def _blob(connection: Connection, digest: str, size: int) -> bytes:
    """A bad line costs what it has torn, not the whole layer again. One that knows no ranges sends all."""
    received = b""
    for attempts_left in reversed(range(RESUMES_MAX + 1)):
        headers = {"Range": f"bytes={len(received)}-"} if received else {}
        expect = (200, 206, 416) if received else (200,)
        try:
            answer = connection.request("GET", f"blobs/{digest}", headers=headers, size_max=size, expect=expect)
            status, body = answer.status, answer.body
        except Torn as torn:
            if not attempts_left:
                raise
            status, body = torn.status, torn.received
        except PeerUnavailable:
            if not attempts_left or not received:
                raise
            continue
        if status == 416:  # it has no more than this; whether that is enough is judged by the caller
            break
        received = received + body if status == 206 else body
        if len(received) >= size:
            break
    return received


def _manifest(answer: Answer, reference: Reference) -> dict[str, Any]:
    try:
        manifest = json.loads(answer.body)
    except ValueError as error:
        raise InvalidInput(f"The manifest of {reference} is not JSON.") from error
    if isinstance(manifest, dict) and "manifests" in manifest:
        raise InvalidInput(f"{reference} is an image for several platforms, not an artifact.")
    if not isinstance(manifest, dict) or not _is_sound(manifest):
        raise InvalidInput(f"The manifest of {reference} is not an OCI manifest with layers.")
    return manifest


def _is_sound(manifest: Mapping[str, Any]) -> bool:
    layers = manifest.get("layers")
    return (
        isinstance(layers, list)
        and _is_texts(manifest.get("annotations"))
        and isinstance(manifest.get("config") or {}, dict)
        and all(
            isinstance(each, dict)
            and isinstance(each.get("mediaType"), str)
            and re.fullmatch("sha256:[0-9a-f]{64}", str(each.get("digest")))
            and type(each.get("size")) is int
            and each["size"] >= 0
            and _is_texts(each.get("annotations"))
            for each in layers
        )
    )


def _is_texts(annotations: Any) -> bool:
    return annotations is None or (
        isinstance(annotations, dict) and all(isinstance(value, str) for value in annotations.values())
    )


def _check_digest(content: bytes, digest: str, what: str) -> None:
    if "sha256:" + hashlib.sha256(content).hexdigest() != digest:
        raise InvalidInput(f"{what} does not match its digest; it was damaged or exchanged on the way.")
