"""A node's way to the content of its site: over HTTPS with the node's certificate; on one machine with the local key.

A broken line is resumed by range. Where the site cannot be reached at all, the node fetches by itself, as it does
where its site caches nothing.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlencode

import anyio

from homeport.adapters.local_access import KeyKind, find
from homeport.adapters.network.http_client import (
    Address,
    ExchangeFailed,
    Streaming,
    TcpAddress,
    TlsAddress,
    parse_json,
    reason_of,
    small_number,
    stream,
)
from homeport.adapters.registry.oci import MANIFEST_SIZE_MAX
from homeport.adapters.registry.reference import nested_name
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.core.inference.models.references import DIGEST
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import (
    DigestMismatch,
    FetchDirectly,
    HomeportError,
    InvalidInput,
    NotFound,
    PeerUnavailable,
    Refused,
)
from homeport.lazy_dataclass import dataclass
from homeport.ports import ContentFile, ContentManifest, OnBytes
from homeport.vocabulary import Digest
from homeport.wire.content import DIRECT, FILES, FOLDER, USER, FileProgress, FileRefusal, decode_file_line

SILENCE_SECONDS: Final = 150.0
"""Longer than the site itself waits for a registry before it gives up."""
CONNECT_SECONDS: Final = 10.0
RESUMES_MAX: Final = 8
"""How often in a row the line to the site may break without a new byte."""
RESUME_SECONDS: Final = 0.5
REFUSAL_SIZE_MAX: Final = 64 * 1024


class LineBroken(PeerUnavailable):
    """The connection to the site failed; the site itself has not refused anything."""


@dataclass(slots=True)
class SiteContent:
    """Implements `ports.FileSource`."""

    host: str
    tls: Callable[[], ssl.SSLContext] | None = None
    verify: Callable[[ssl.SSLObject], object] | None = None
    """Raises Refused unless the peer is this node's own site."""
    local_keys: Path | None = None
    port: int = 0
    """As the site says when it welcomes the node; 0 where it serves no content."""

    def found_at(self, port: int) -> None:
        self.port = port

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        try:
            async with self.get(f"{FOLDER}{_place(repository)}/manifests/{reference}", user=user) as answer:
                content = await _read(answer, MANIFEST_SIZE_MAX)
        except LineBroken as error:
            raise FetchDirectly(str(error)) from error
        digest = digest_of_bytes(content)
        if digest != answer.headers.get("docker-content-digest") or (":" in reference and digest != reference):
            raise DigestMismatch(f"The manifest {reference} from the site does not match its digest.")
        return ContentManifest(digest, answer.headers.get("content-type", ""), content)

    async def file(self, source: str, *, user: str = "", on_bytes: OnBytes) -> ContentFile:
        try:
            async with self.get(f"{FILES}?{urlencode({'source': source})}", user=user) as answer:
                async for line in _lines(answer):
                    match decode_file_line(line):
                        case FileProgress(done_bytes=done, total_bytes=total):
                            on_bytes(done, total)
                        case FileRefusal() as refusal:
                            raise _refusal_of(
                                refusal.status, refusal.message, refusal.is_direct, refusal.retry_after_seconds
                            )
                        case ContentFile() as found:
                            return _checked(found)
        except ValueError as error:
            raise PeerUnavailable(f"The site gave an unusable answer about {source[:200]}.") from error
        raise LineBroken("The site ended before it had the file.")

    @asynccontextmanager
    async def open(self, source: str, digest: Digest, *, user: str = "") -> AsyncIterator["ContentFromSite"]:
        path = f"{FOLDER}{_place(source)}/blobs/{digest}"
        if not source.startswith("oci://"):
            path = f"{FILES}/blobs/{digest}?{urlencode({'source': source})}"
        async with AsyncExitStack() as stack:
            answer = await stack.enter_async_context(self.get(path, user=user))
            size = answer.headers.get("content-length", "")
            if not size.isdecimal() or len(size) > 18:
                raise PeerUnavailable("The site does not say how large the content is.")
            yield ContentFromSite(self, path, user, digest, int(size), stack, answer)

    @asynccontextmanager
    async def get(self, path: str, *, user: str, offset: int = 0) -> AsyncIterator[Streaming]:
        """Raises LineBroken, and what the site refuses with."""
        headers = self._local_key() | ({USER: user} if user else {})
        if offset:
            headers["Range"] = f"bytes={offset}-"
        async with AsyncExitStack() as stack:
            try:
                answer = await stack.enter_async_context(
                    stream(self._address(), "GET", path, headers=headers, silence_seconds=SILENCE_SECONDS)
                )
            except (OSError, ExchangeFailed) as error:
                raise LineBroken(f"The site cannot be reached for content ({reason_of(error)}).") from error
            if answer.status not in (200, 206):
                raise _refusal(answer, await _read(answer, REFUSAL_SIZE_MAX))
            yield answer

    def _address(self) -> Address:
        if not self.port:
            raise FetchDirectly("The site serves no content.")
        if self.tls is None:
            return TcpAddress(self.host, self.port)
        return TlsAddress(self.host, self.port, self.tls(), server_name=SERVER_NAME, check=self.verify)

    def _local_key(self) -> dict[str, str]:
        """Read each time: it changes with each start of the site."""
        found = None if self.tls is not None else find(self.local_keys, self.port, KeyKind.MACHINE)
        return {"Authorization": f"Bearer {found.key}"} if found is not None and found.opens(self.host) else {}


@dataclass(slots=True)
class ContentFromSite:
    """Implements `ports.OpenContent`."""

    site: SiteContent
    path: str
    user: str
    digest: Digest
    size_bytes: int
    _stack: AsyncExitStack
    _first: Streaming | None
    """The response to the first request, for the caller that reads from the beginning."""

    @property
    def file(self) -> BinaryIO | None:
        return None

    async def chunks(self, offset: int = 0, count: int | None = None) -> AsyncIterator[bytes]:
        end = self.size_bytes if count is None else min(offset + count, self.size_bytes)
        failures = 0
        while offset < end:
            before = offset
            try:
                async for chunk in self._response(offset):
                    part = chunk[: end - offset]
                    offset += len(part)
                    yield part
                    if offset >= end:
                        break
            except LineBroken:
                failures = 1 if offset > before else failures + 1
                if failures > RESUMES_MAX:
                    raise
                await anyio.sleep(RESUME_SECONDS)

    async def _response(self, offset: int) -> AsyncIterator[bytes]:
        """One response, from the offset on; the first is open already. Raises LineBroken where it is too short."""
        first, self._first = self._first, None
        if first is not None and not offset:
            async for chunk in _chunks(first):
                yield chunk
        else:
            await self._stack.aclose()
            async with self.site.get(self.path, user=self.user, offset=offset) as answer:
                async for chunk in _chunks(answer):
                    yield chunk
        raise LineBroken("The site ended before the content did.")


async def _chunks(answer: Streaming) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.chunks():
            yield chunk
    except (OSError, ExchangeFailed) as error:
        raise LineBroken(f"The site did not send all of it ({reason_of(error)}).") from error


async def _read(answer: Streaming, size_max: int) -> bytes:
    try:
        return await answer.read(size_max, seconds_max=SILENCE_SECONDS)
    except (OSError, ExchangeFailed) as error:
        raise LineBroken(f"The site did not send all of it ({reason_of(error)}).") from error


async def _lines(answer: Streaming) -> AsyncIterator[bytes]:
    """Raises ValueError for a line that is too long."""
    rest = b""
    async for chunk in _chunks(answer):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > REFUSAL_SIZE_MAX:
            raise ValueError("a line is too long")


def _checked(found: ContentFile) -> ContentFile:
    if not DIGEST.fullmatch(found.digest):
        raise ValueError("that is not a digest")
    return found


def _refusal(answer: Streaming, body: bytes) -> HomeportError:
    is_known = True
    try:
        document = parse_json(body)
        is_known = "errors" in document
        message = str(document["errors"][0]["message"] if is_known else document["detail"])[:500]
    except (ValueError, LookupError, TypeError):
        message = f"The site answered HTTP {answer.status}."
    # A site of an older release has no such route.
    is_direct = answer.headers.get(DIRECT) == "yes" or (answer.status == 404 and not is_known)
    seconds = float(small_number(answer.headers.get("retry-after", "")) or 5)
    return _refusal_of(answer.status, message, is_direct, seconds)


def _refusal_of(status: int, message: str, is_direct: bool, retry_after_seconds: float) -> HomeportError:
    if is_direct:
        return FetchDirectly(message)
    if status == 404:
        return NotFound(message)
    if status in (401, 403):
        return Refused(message)
    if status in (429, 503):
        error = PeerUnavailable(message)
        error.retry_after_seconds = retry_after_seconds
        return error
    return InvalidInput(message)


def _place(repository: str) -> str:
    return f"/v2/{nested_name(repository.removeprefix('oci://'))}"
