"""Large files in an OCI registry, models above all: never whole in memory, resumable, and verified by the caller.

Content is read in ranges and written in parts, each a request of its own, so that authentication, redirects and
proxies are those of `transport`. Other clients' model artifacts are understood by their media types and titles.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from anyio.to_thread import run_sync

from homeport.adapters.registry.oci import MANIFEST_SIZE_MAX, MANIFEST_TYPE, OciRegistry, version_is_taken
from homeport.adapters.registry.reference import parse_reference
from homeport.adapters.registry.transport import RegistryConnection, Torn
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import InvalidInput, PeerUnavailable
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

PIECE_BYTES: Final = 16 * 2**20
ATTEMPTS_MAX: Final = 5
MODEL_TYPE: Final = "application/vnd.cncf.model.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.cncf.model.config.v1+json"
WEIGHT_TYPE: Final = "application/vnd.cncf.model.weight.v1.raw"
TITLE: Final = "org.opencontainers.image.title"
FILE_PATH: Final = "org.cncf.model.filepath"
NAME_BYTES_MAX: Final = 200

OnBytes = Callable[[int, int], None]
"""Bytes done, and bytes in all."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One layer of an artifact."""

    name: str
    digest: Digest
    size_bytes: int


async def find_model(registry: OciRegistry, repository: str, tag: str) -> RemoteFile:
    """The model file of an artifact. Raises NotFound, PeerUnavailable, InvalidInput."""
    connection = registry.connection(parse_reference(repository, tag), "pull")
    answer = await connection.request(
        "GET", f"manifests/{tag}", headers={"Accept": MANIFEST_TYPE}, size_max=MANIFEST_SIZE_MAX
    )
    if tag.startswith("sha256:") and digest_of_bytes(answer.body) != tag:
        raise InvalidInput(f"The manifest of {repository} does not match its digest.")
    return model_in(answer.body, f"{repository}:{tag}")


def model_in(manifest: bytes, name: str) -> RemoteFile:
    """The model file that a manifest names. Raises InvalidInput."""
    chosen = max(_layers(manifest), key=_likeness, default=None)
    if chosen is None:
        raise InvalidInput(f"{name} has no layer that could be a model.")
    return RemoteFile(_name(chosen), Digest(chosen["digest"]), chosen["size"])


async def read_piece(connection: RegistryConnection, digest: Digest, start: int, size_bytes: int) -> bytes:
    """Up to PIECE_BYTES from `start`. A broken line is tried again."""
    end = min(start + PIECE_BYTES, size_bytes)
    headers = {"Range": f"bytes={start}-{end - 1}"}
    for attempt in range(ATTEMPTS_MAX):
        try:
            answer = await connection.request(
                "GET", f"blobs/{digest}", headers=headers, size_max=PIECE_BYTES, expect=(200, 206)
            )
        except (Torn, PeerUnavailable):
            if attempt + 1 == ATTEMPTS_MAX:
                raise
            continue
        if answer.status == 200 and len(answer.body) == size_bytes:
            return answer.body[start:end]
        if answer.status == 206 and answer.body:
            return answer.body
        raise PeerUnavailable(f"The registry {connection.reference.host} does not send parts of files.")
    raise PeerUnavailable(f"The registry {connection.reference.host} did not send a part of a file.")


async def push_file(
    registry: OciRegistry,
    repository: str,
    tag: str,
    path: Path,
    *,
    digest: Digest,
    size: int,
    on_bytes: OnBytes,
) -> Digest:
    """Stores a file as a model artifact; returns the manifest's digest. What the registry has is not sent again."""
    connection = registry.connection(parse_reference(repository, tag), "pull,push")
    known = await connection.request("HEAD", f"blobs/{digest}", expect=(200, 404))
    if known.status != 200:
        await _upload(connection, path, size, digest, on_bytes)
    on_bytes(size, size)
    config = json.dumps({"descriptor": {"name": path.stem}, "modelfs": {"type": "layers", "diffIds": [digest]}})
    config_digest = await _upload_small(connection, config.encode())
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": MODEL_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": config_digest, "size": len(config)},
            "layers": [
                {
                    "mediaType": WEIGHT_TYPE,
                    "digest": digest,
                    "size": size,
                    "annotations": {TITLE: path.name, FILE_PATH: path.name},
                }
            ],
        },
        indent=2,
    ).encode()
    return await _put_manifest(connection, tag, manifest)


async def _put_manifest(connection: RegistryConnection, tag: str, manifest: bytes) -> Digest:
    """A tag that has other content stays as it is: nodes that have it would never notice a change."""
    digest = digest_of_bytes(manifest)
    there = await connection.request("HEAD", f"manifests/{tag}", headers={"Accept": MANIFEST_TYPE}, expect=(200, 404))
    if there.status == 200:
        if there.headers.get("docker-content-digest") == digest:
            return digest
        raise version_is_taken(connection.reference)
    headers = {"Content-Type": MANIFEST_TYPE}
    await connection.request("PUT", f"manifests/{tag}", body=manifest, headers=headers, expect=(200, 201, 202))
    return digest


async def _upload(connection: RegistryConnection, path: Path, size: int, digest: Digest, on_bytes: OnBytes) -> None:
    begun = await connection.request("POST", "blobs/uploads/", body=b"", expect=(202,))
    location, done = begun.headers.get("location", ""), 0
    with path.open("rb") as file:
        while piece := await run_sync(file.read, PIECE_BYTES):
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Range": f"{done}-{done + len(piece) - 1}",
            }
            answer = await connection.request("PATCH", location, body=piece, headers=headers, expect=(202,))
            location, done = answer.headers.get("location", location), done + len(piece)
            on_bytes(done, size)
    location += ("&" if "?" in location else "?") + urlencode({"digest": digest})
    await connection.request("PUT", location, body=b"", expect=(201,))


async def _upload_small(connection: RegistryConnection, content: bytes) -> Digest:
    digest = Digest("sha256:" + hashlib.sha256(content).hexdigest())
    begun = await connection.request("POST", "blobs/uploads/", body=b"", expect=(202,))
    location = begun.headers.get("location", "")
    location += ("&" if "?" in location else "?") + urlencode({"digest": digest})
    headers = {"Content-Type": "application/octet-stream"}
    await connection.request("PUT", location, body=content, headers=headers, expect=(201,))
    return digest


def _layers(body: bytes) -> list[Mapping[str, Any]]:
    try:
        manifest = json.loads(body)
        layers = manifest["layers"]
        return [
            each
            for each in layers
            if isinstance(each, dict)
            and str(each.get("digest", "")).startswith("sha256:")
            and type(each.get("size")) is int
            and each["size"] > 0
        ]
    except (RecursionError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput("The manifest of the model is not an OCI manifest with layers.") from error


def _likeness(layer: Mapping[str, Any]) -> tuple[bool, int]:
    """Weights by their type or name before anything else; then the largest."""
    kind = str(layer.get("mediaType", ""))
    return ("weight" in kind or "gguf" in kind or _name(layer).endswith(".gguf"), int(layer["size"]))


def _name(layer: Mapping[str, Any]) -> str:
    """What the artifact claims it is called."""
    notes = layer.get("annotations") or {}
    said = str(notes.get(FILE_PATH) or notes.get(TITLE) or "model.gguf") if isinstance(notes, dict) else "model.gguf"
    return safe_file_name(said)


def safe_file_name(said: str) -> str:
    """The last part of a path as a file name, whatever others claim: it becomes one on our disk. Hidden names are
    ours."""
    name = said.replace("\\", "/").rpartition("/")[2]
    is_safe = name.isprintable() and not name.startswith(".") and 0 < len(name.encode()) <= NAME_BYTES_MAX
    return name if is_safe else "model.gguf"
