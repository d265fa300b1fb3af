"""Content by digest: central's built-in registry as other parts of central see it, and the cache of a site."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import BinaryIO, Protocol

from homeport.core.model.artifact import Artifact
from homeport.lazy_dataclass import dataclass
from homeport.ports.storage.blobs import BlobUsage
from homeport.vocabulary import Digest


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    host: str
    """`host:port`, as in image references."""
    is_tls: bool


class BuiltInRegistry(Protocol):
    @property
    def address(self) -> RegistryAddress | None:
        """None while it is not served; `why_off` says why."""
        ...

    @property
    def why_off(self) -> str: ...

    @property
    def is_wanted(self) -> bool:
        """Whether it is enabled; it may have found no free port."""
        ...

    async def usage(self) -> BlobUsage: ...

    async def push(self, name: str, tag: str, artifact: Artifact) -> None:
        """Stores what central itself has packed, as a push from outside would. Raises Conflict."""
        ...

    async def keep(self) -> None:
        """Collects garbage periodically, until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class ContentManifest:
    digest: Digest
    media_type: str
    content: bytes


class OpenContent(Protocol):
    """Content to read from, while it is still arriving too."""

    @property
    def digest(self) -> Digest: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def file(self) -> BinaryIO | None:
        """The whole content on disk, verified; None while it is arriving."""
        ...

    def chunks(self, offset: int = 0, count: int | None = None) -> AsyncIterator[bytes]:
        """A part of it, as it arrives. The last byte is only given once the whole matches its digest; until then
        what is read is not verified. Raises what ended the download."""
        ...


class Incoming(Protocol):
    """A response with content; the rest of it, from the requested offset on."""

    @property
    def size_bytes(self) -> int | None:
        """Of the whole content; None where the other side does not say."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Raises PeerUnavailable where it breaks off."""
        ...


class IncomingFile(Incoming, Protocol):
    """A response with a file of the web. Its digest is not known beforehand, unless its server sends it."""

    @property
    def name(self) -> str: ...

    @property
    def offset(self) -> int:
        """Where its bytes begin: at the requested offset, or at 0 where the server sends the whole again."""
        ...

    @property
    def validator(self) -> str:
        """What the server calls this content (its ETag); empty where an interrupted download cannot be resumed."""
        ...

    @property
    def promised(self) -> Digest | None: ...


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A file of the web, and which content it is."""

    name: str
    digest: Digest
    size_bytes: int


class Upstream(Protocol):
    """Where content comes from. Raises Refused, NotFound, InvalidInput, TooLarge, and PeerUnavailable with
    `retry_after_seconds` for what may work later."""

    async def manifest(self, repository: str, reference: str, *, known: Digest | None) -> ContentManifest | None:
        """None where it is still the `known` one."""
        ...

    def blob(self, source: str, digest: Digest, *, offset: int) -> AbstractAsyncContextManager[Incoming]: ...

    def file(self, source: str, *, offset: int, validator: str) -> AbstractAsyncContextManager[IncomingFile]:
        """From its beginning where it is not any more what the validator says."""
        ...


LiveUsers = Callable[[], Awaitable[Collection[str]]]
"""The users of content that still need it."""
OnBytes = Callable[[int, int], None]
"""Bytes done, and bytes in all (0 while unknown)."""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    stored_bytes: int
    """What its content takes on disk, unfinished downloads included."""
    size_max_bytes: int
    protected_bytes: int
    """The part that a user needs, and that is never evicted."""
    blobs: int
    transfers: int
    """Downloads under way."""


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Since the start."""

    hits: int
    misses: int
    fetched_bytes: int
    """Over the line, from upstream."""
    evicted_bytes: int
    failed: int
    """Downloads that were given up."""


class ContentSource(Protocol):
    """Content as a node gets it from its site.

    A `source` is `oci://host[:port]/name` or, for a file, an https URL or a `hf:` or `s3:` reference. A `user` names
    what needs the content (`component/DIGEST`, `model/NAME`): content of users that are alive is never evicted.
    Without a user it may be evicted when it has not been read for longer than other content.
    """

    def open(self, source: str, digest: Digest, *, user: str = "") -> AbstractAsyncContextManager[OpenContent]:
        """Returns as soon as the size is known; the first request starts the download, others join it. Raises what
        `Upstream` raises, and QuotaExceeded where protected content leaves no room. A node gets FetchDirectly where
        it may try by itself."""
        ...

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        """A manifest by tag or digest. A tag is looked up upstream each time; the known one is returned where
        upstream cannot answer. What the manifest refers to counts as used too."""
        ...


class FileSource(ContentSource, Protocol):
    """With files of the web, whose digest may not be known: models."""

    async def file(self, source: str, *, user: str = "", on_bytes: OnBytes) -> ContentFile:
        """Which content a file of the web is: fetched, if it is not here, until all of it is. What was fetched once
        is the answer from then on, so that all nodes of a site get the same."""
        ...


class ContentCache(FileSource, Protocol):
    """The content that a site keeps for its nodes: fetched once from where it comes from, verified, stored by digest,
    bounded, and available while that place is not (ADR 0055)."""

    async def ensure(self, source: str, digest: Digest, *, user: str = "", on_bytes: OnBytes | None = None) -> int:
        """Fetches the content unless it is here, and returns its size: verified and durable."""
        ...

    def protect(self, live_users: LiveUsers) -> None:
        """Adds one more source of users that are alive. Asked before anything is evicted."""
        ...

    async def knows(self, repository: str) -> bool:
        """Whether anything was ever fetched from the registry of this repository, or from this file of the web."""
        ...

    async def usage(self) -> CacheUsage: ...

    @property
    def counters(self) -> CacheCounters: ...

    async def run(self) -> None:
        """Downloads and tidies up while the site runs."""
        ...
