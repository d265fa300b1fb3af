"""Artifacts in any OCI registry, over the distribution API.

Nothing is trusted: pulled content is verified against size and digest before it is passed on, and its size is
limited before it is read.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urljoin

from anyio.to_thread import run_sync

from homeport.adapters.network.http_client import parse_json
from homeport.adapters.registry.credentials import RegistryCredentials, local_login
from homeport.adapters.registry.reference import OciReference, parse_reference
from homeport.adapters.registry.transport import (
    TIMEOUT_SECONDS,
    RegistryAnswer,
    RegistryConnection,
    Torn,
    Trust,
)
from homeport.core.model.artifact import Artifact, Layer
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import Conflict, InvalidInput, PeerUnavailable, TooLarge
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
EMPTY_TYPE: Final = "application/vnd.oci.empty.v1+json"
EMPTY_CONFIG: Final = b"{}"
MANIFEST_SIZE_MAX: Final = 4 * 2**20
ARTIFACT_SIZE_MAX: Final = 64 * 2**20
LAYER_COUNT_MAX: Final = 200
TAGS_PAGE: Final = 100
TAGS_MAX: Final = 2_000
TAGS_SIZE_MAX: Final = 2**20
AT_ONCE_MAX: Final = 64 * 1024
"""Content up to this size is sent without checking whether it exists: the check would take as long."""
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_NEXT_PAGE: Final = re.compile(r'<([^>]*)>\s*;\s*rel="?next\b')
RESUMES_MAX: Final = 8
"""How often an interrupted layer is resumed; after that the caller has to retry."""

FetchBlob = Callable[[str, int], Awaitable[bytes]]
"""A blob by digest and size; a longer one need not be read to its end."""


@dataclass(frozen=True, slots=True)
class OciRegistry:
    """Implements `ports.Registry`."""

    auth_files: Sequence[Path] = ()
    """Files with credentials; see `credentials.default_auth_files`."""
    logins: Mapping[str, RegistryCredentials] = field(default_factory=dict)
    """Known credentials, by host (with port)."""
    access_folder: Path | None = None
    """Where roles of this machine publish keys for programs of their own user."""
    trusted: Mapping[str, Trust] = field(default_factory=dict)
    """How to authenticate hosts (with port) that the system's authorities do not vouch for."""
    plain_http_hosts: frozenset[str] = frozenset()
    """Hosts (with port) that are accessed without TLS, in addition to those on loopback."""
    timeout_seconds: float = TIMEOUT_SECONDS

    async def pull(self, repository: str, tag: str, *, user: str = "") -> Artifact:
        reference = parse_reference(repository, tag)
        return await _pull(self.connection(reference, "pull"))

    async def pull_pinned(
        self, repository: str, tag: str, *, only: Collection[str] | None = None
    ) -> tuple[Digest, Artifact]:
        """With the digest of its manifest, which names exactly this content for ever. `only` are the media types of
        the layers that are fetched."""
        connection = self.connection(parse_reference(repository, tag), "pull")
        manifest = await _pull_manifest(connection)
        fetch = partial(_blob, connection)
        return digest_of_bytes(manifest), await read_artifact(manifest, connection.reference, fetch, only=only)

    async def tags(self, repository: str, *, page: int = TAGS_PAGE) -> Sequence[str]:
        """All tags of a repository, page by page. Raises NotFound, PeerUnavailable, InvalidInput, TooLarge."""
        return await _tags(self.connection(parse_reference(repository, "latest"), "pull"), page)

    async def push(self, repository: str, tag: str, artifact: Artifact) -> Digest:
        reference = parse_reference(repository, tag)
        return await _push(self.connection(reference, "pull,push"), artifact)

    def connection(self, reference: OciReference, scope: str) -> RegistryConnection:
        return RegistryConnection(
            reference,
            scope,
            self.auth_files,
            self.plain_http_hosts,
            self.timeout_seconds,
            trust=self.trusted.get(reference.host),
            login=self.logins.get(reference.host) or local_login(self.access_folder, reference.host),
        )


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


async def _push(connection: RegistryConnection, artifact: Artifact) -> Digest:
    manifest = render_manifest(artifact)
    digest = digest_of_bytes(manifest)
    there = await connection.request(
        "HEAD", f"manifests/{connection.reference.tag}", headers={"Accept": MANIFEST_TYPE}, expect=(200, 404)
    )
    if there.status == 200:
        if there.headers.get("docker-content-digest") == digest:
            return digest
        raise version_is_taken(connection.reference)
    config = artifact.config.content if artifact.config is not None else EMPTY_CONFIG
    for content in dict.fromkeys((config, *(layer.content for layer in artifact.layers))):
        await _push_blob(connection, content)
    headers = {"Content-Type": MANIFEST_TYPE}
    url = f"manifests/{connection.reference.tag}"
    await connection.request("PUT", url, body=manifest, headers=headers, expect=(200, 201, 202))
    return digest


def version_is_taken(reference: OciReference) -> Conflict:
    """Nodes that have the old content would keep it, and a successful push would hide that."""
    return Conflict(
        f"{reference} already exists with other content.",
        hint="A version never changes. Give the app, or the component whose files changed, a new version.",
    )


async def _push_blob(connection: RegistryConnection, content: bytes) -> None:
    """Small content is sent with the first request; a registry that requires two steps says so."""
    digest = await run_sync(digest_of_bytes, content)
    headers = {"Content-Type": "application/octet-stream"}
    if len(content) <= AT_ONCE_MAX:
        url = f"blobs/uploads/?{urlencode({'digest': digest})}"
        begun = await connection.request("POST", url, body=content, headers=headers, expect=(201, 202))
        if begun.status == 201:
            return
    else:
        known = await connection.request("HEAD", f"blobs/{digest}", expect=(200, 404))
        if known.status == 200:
            return
        begun = await connection.request("POST", "blobs/uploads/", body=b"", expect=(202,))
    location = begun.headers.get("location", "")
    location += ("&" if "?" in location else "?") + urlencode({"digest": digest})
    await connection.request("PUT", location, body=content, headers=headers, expect=(201,))


async def _tags(connection: RegistryConnection, page: int) -> Sequence[str]:
    found: dict[str, None] = {}
    name = f"{connection.reference.host}/{connection.reference.name}"
    url: str | None = f"tags/list?{urlencode({'n': page})}"
    while url is not None:
        answer = await connection.request("GET", url, size_max=TAGS_SIZE_MAX)
        try:
            given = parse_json(answer.body)
            tags = (given.get("tags") or []) if isinstance(given, dict) else None
            following = _following(answer)
        except ValueError:
            tags = following = None
        if not isinstance(tags, list) or not all(isinstance(tag, str) and _TAG.fullmatch(tag) for tag in tags):
            raise InvalidInput(f"The list of tags of {name} is not one.")
        new = [tag for tag in tags if tag not in found]
        found.update(dict.fromkeys(new))
        if len(found) > TAGS_MAX:
            raise TooLarge(f"{name} has more than {TAGS_MAX} tags.", hint="Name one version of it.")
        if not new:  # a registry that ignores `last` sends the same page again
            return list(found)
        url = following
        if url is None and len(tags) >= page:
            url = f"tags/list?{urlencode({'n': page, 'last': tags[-1]})}"
    return list(found)


def _following(answer: RegistryAnswer) -> str | None:
    """The address of the next page, where the registry gives one: some have more in it than the last tag. Raises
    ValueError."""
    link = _NEXT_PAGE.search(answer.headers.get("link", ""))
    return None if link is None else urljoin(answer.url, link[1])


async def _pull(connection: RegistryConnection) -> Artifact:
    manifest = await _pull_manifest(connection)
    return await read_artifact(manifest, connection.reference, partial(_blob, connection))


async def _pull_manifest(connection: RegistryConnection) -> bytes:
    tag = connection.reference.tag
    answer = await connection.request(
        "GET", f"manifests/{tag}", headers={"Accept": MANIFEST_TYPE}, size_max=MANIFEST_SIZE_MAX
    )
    promised = tag if ":" in tag else answer.headers.get("docker-content-digest")
    if promised is not None and promised.startswith("sha256:"):
        _check_digest(answer.body, promised, f"The manifest of {connection.reference}")
    return answer.body


async def read_artifact(
    manifest: bytes, reference: OciReference, fetch: FetchBlob, *, only: Collection[str] | None = None
) -> Artifact:
    """The artifact of a manifest; every layer is verified. `only` are the media types of those that are wanted."""
    document = _manifest(manifest, reference)
    descriptors = [each for each in document["layers"] if only is None or each["mediaType"] in only]
    if len(descriptors) > LAYER_COUNT_MAX or sum(each["size"] for each in descriptors) > ARTIFACT_SIZE_MAX:
        raise TooLarge(f"{reference} is larger than the {ARTIFACT_SIZE_MAX // 2**20} MiB that are accepted.")
    return Artifact(
        artifact_type=str(document.get("artifactType") or (document.get("config") or {}).get("mediaType") or ""),
        layers=tuple([await _layer(reference, each, fetch) for each in descriptors]),
        annotations=document.get("annotations") or {},
    )


async def _layer(reference: OciReference, descriptor: Mapping[str, Any], fetch: FetchBlob) -> Layer:
    digest, size = descriptor["digest"], descriptor["size"]
    content = await fetch(digest, size)
    if len(content) != size:
        raise InvalidInput(f"A layer of {reference} has {len(content)} bytes where {size} were promised.")
    await run_sync(_check_digest, content, digest, f"A layer of {reference}")
    return Layer(descriptor["mediaType"], content, descriptor.get("annotations") or {})


async def _blob(connection: RegistryConnection, digest: str, size: int) -> bytes:
    """A broken connection costs only the missing rest, not the whole layer. A registry without ranges sends all."""
    received = b""
    for attempts_left in reversed(range(RESUMES_MAX + 1)):
        headers = {"Range": f"bytes={len(received)}-"} if received else {}
        expect = (200, 206, 416) if received else (200,)
        try:
            answer = await connection.request("GET", f"blobs/{digest}", headers=headers, size_max=size, expect=expect)
            status, body = answer.status, answer.body
        except Torn as torn:
            if not attempts_left:
                raise
            status, body = torn.status, torn.received
        except PeerUnavailable:
            if not attempts_left or not received:
                raise
            continue
        if status == 416:  # it has no more than this; the caller checks whether that is enough
            break
        received = received + body if status == 206 else body
        if len(received) >= size:
            break
    return received


def _manifest(content: bytes, reference: OciReference) -> dict[str, Any]:
    try:
        manifest = parse_json(content)
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
