"""Where a site's cache gets content from: any OCI registry, or a file of the web. Blobs are passed on as they arrive;
the cache verifies them."""

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Final

from homeport.adapters.network.http_client import ExchangeFailed, Streaming, parse_json, reason_of
from homeport.adapters.registry.credentials import local_login
from homeport.adapters.registry.oci import MANIFEST_SIZE_MAX
from homeport.adapters.registry.reference import OciReference, parse_reference
from homeport.adapters.registry.transport import TIMEOUT_SECONDS, RegistryConnection, Trust
from homeport.adapters.registry.web_files import ArrivingFile, ModelSourceOptions, open_file
from homeport.core.inference.models.references import parse_reference as parse_model
from homeport.errors import DigestMismatch, InvalidInput, PeerUnavailable
from homeport.lazy_dataclass import dataclass
from homeport.ports import ContentManifest, Incoming
from homeport.vocabulary import Digest

MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
DOCKER_HUB: Final = "docker.io"
DOCKER_HUB_HOST: Final = "registry-1.docker.io"
DOCKER_HUB_LOGINS: Final = ("docker.io", "index.docker.io")
_RANGE: Final = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18})")

FindTrust = Callable[[str], Awaitable[Trust | None]]
"""How to authenticate a host (with port); None by the system's authorities."""


async def by_system_authorities(host: str) -> Trust | None:
    return None


@dataclass(frozen=True, slots=True)
class RegistryUpstream:
    """Implements `ports.Upstream`."""

    auth_files: Sequence[Path] = ()
    access_folder: Path | None = None
    trust_of: FindTrust = by_system_authorities
    plain_http_hosts: frozenset[str] = frozenset()
    timeout_seconds: float = TIMEOUT_SECONDS
    web: ModelSourceOptions = field(default_factory=ModelSourceOptions)

    async def manifest(self, repository: str, reference: str, *, known: Digest | None) -> ContentManifest | None:
        connection = await self._connection(parse_reference(repository, reference))
        headers = {"Accept": ", ".join(MANIFEST_TYPES)}
        if known is not None:
            seen = await connection.request(
                "HEAD", f"manifests/{reference}", headers=headers, expect=(200, 400, 405, 501)
            )
            if seen.status == 200 and seen.headers.get("docker-content-digest") == known:
                return None
        answer = await connection.request(
            "GET", f"manifests/{reference}", headers=headers, size_max=MANIFEST_SIZE_MAX
        )
        _refuse_web_page(connection.reference, answer.headers.get("content-type", ""))
        digest = Digest("sha256:" + hashlib.sha256(answer.body).hexdigest())
        promised = reference if ":" in reference else answer.headers.get("docker-content-digest", digest)
        if promised.startswith("sha256:") and promised != digest:
            raise DigestMismatch(
                f"The registry {connection.reference.host} sent a manifest of {connection.reference} that does not "
                "match its digest; it was damaged or exchanged on the way."
            )
        return ContentManifest(digest, _media_type(connection.reference, answer.body), answer.body)

    @asynccontextmanager
    async def blob(self, source: str, digest: Digest, *, offset: int) -> AsyncIterator[Incoming]:
        if not source.startswith("oci://"):
            # What arrives is verified in the end, so that no validator is needed to resume.
            async with open_file(parse_model(source, field="source"), self.web, offset=offset) as file:
                yield file
            return
        reference = parse_reference(source, "latest")
        connection = await self._connection(OciReference(reference.host, reference.name, digest))
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        expect = (200, 206, 416) if offset else (200,)
        async with connection.stream(f"blobs/{digest}", headers=headers, expect=expect) as answer:
            _refuse_web_page(connection.reference, answer.headers.get("content-type", ""))
            yield _arriving(connection, answer, offset)

    @asynccontextmanager
    async def file(self, source: str, *, offset: int, validator: str) -> AsyncIterator[ArrivingFile]:
        reference = parse_model(source, field="source")
        async with open_file(reference, self.web, offset=offset, validator=validator) as file:
            yield file

    async def _connection(self, reference: OciReference) -> RegistryConnection:
        also: Sequence[str] = ()
        if reference.host == DOCKER_HUB:
            reference, also = OciReference(DOCKER_HUB_HOST, reference.name, reference.tag), DOCKER_HUB_LOGINS
        return RegistryConnection(
            reference,
            "pull",
            self.auth_files,
            self.plain_http_hosts,
            self.timeout_seconds,
            trust=await self.trust_of(reference.host),
            login=local_login(self.access_folder, reference.host),
            login_hosts=also,
        )


@dataclass(frozen=True, slots=True)
class ArrivingBlob:
    """Implements `ports.Incoming`."""

    connection: RegistryConnection
    answer: Streaming
    size_bytes: int | None
    skip_bytes: int
    """How much of the response is here already: a registry without ranges sends everything again."""

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.answer.status == 416:  # There is no more; the cache checks whether that is enough.
            return
        skip, reference = self.skip_bytes, self.connection.reference
        try:
            async for chunk in self.answer.chunks():
                if skip < len(chunk):
                    yield chunk[skip:]
                skip = max(skip - len(chunk), 0)
        except (OSError, ExchangeFailed) as error:
            message = f"The registry {reference.host} did not send all of {reference} ({reason_of(error)})."
            raise PeerUnavailable(message) from error


def _arriving(connection: RegistryConnection, answer: Streaming, offset: int) -> ArrivingBlob:
    found = _RANGE.fullmatch(answer.headers.get("content-range", "").strip())
    if answer.status == 200:
        length = answer.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None
        return ArrivingBlob(connection, answer, size, offset)
    if found is None or (answer.status == 206 and int(found[1] or -1) != offset):
        host = connection.reference.host
        raise InvalidInput(f"The registry {host} sent another part of {connection.reference} than the requested one.")
    return ArrivingBlob(connection, answer, int(found[2]), 0)


def _refuse_web_page(reference: OciReference, content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml"):
        raise PeerUnavailable(
            f"The registry {reference.host} answered with a web page instead of {reference}; "
            "a proxy or a login page may be in between."
        )


def _media_type(reference: OciReference, content: bytes) -> str:
    """The manifest's own; registries label them in different ways."""
    try:
        document = parse_json(content)
        declared = document.get("mediaType")
        has_layers, has_manifests = (isinstance(document.get(key), list) for key in ("layers", "manifests"))
    except (ValueError, AttributeError) as error:
        raise InvalidInput(
            f"The registry {reference.host} sent no manifest of {reference}: it is not JSON."
        ) from error
    if declared in MANIFEST_TYPES:
        return str(declared)
    if has_manifests or has_layers:
        return MANIFEST_TYPES[1] if has_manifests else MANIFEST_TYPES[0]
    raise InvalidInput(
        f"The registry {reference.host} sent a manifest of {reference} that is neither an image's nor an index."
    )
