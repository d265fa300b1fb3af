"""Content by digest, on a disk of bounded size: the registry's blobs, a site's cache, models.

Content that arrived completely and matches its digest is a blob, and never changes. Content still arriving is an
upload: it survives the end of the process and can be resumed.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import BinaryIO, NewType, Protocol

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

UploadId = NewType("UploadId", str)


@dataclass(frozen=True, slots=True)
class OpenBlob:
    """A blob to read from. It stays readable while it is open, even when it is removed."""

    file: BinaryIO
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredBlob:
    digest: Digest
    size_bytes: int
    at: datetime
    """When it was stored, or last touched."""


@dataclass(frozen=True, slots=True)
class Upload:
    id: UploadId
    size_bytes: int
    at: datetime
    """When data was last appended."""


@dataclass(frozen=True, slots=True)
class BlobUsage:
    blob_bytes: int
    upload_bytes: int
    quota_bytes: int

    @property
    def free_bytes(self) -> int:
        return max(self.quota_bytes - self.blob_bytes - self.upload_bytes, 0)


class BlobStore(Protocol):
    """Every method raises StorageFull or StorageReadOnly when the disk is the cause, with nothing written."""

    async def size(self, digest: Digest) -> int | None:
        """None for an unknown blob."""
        ...

    def open(self, digest: Digest) -> AbstractAsyncContextManager[OpenBlob]:
        """Raises NotFound."""
        ...

    async def put(self, content: bytes, *, algorithm: str = "sha256") -> Digest:
        """Stores a small blob in one call. Raises QuotaExceeded."""
        ...

    async def begin(self, upload_id: UploadId | None = None) -> UploadId:
        """A new upload; with an id, the one with that id, which may have content already."""
        ...

    def open_upload(self, upload_id: UploadId) -> AbstractAsyncContextManager[OpenBlob]:
        """What has arrived so far. The file stays readable while it is open, and grows with the upload; it is also
        that of the blob which the upload becomes. Raises NotFound."""
        ...

    async def upload(self, upload_id: UploadId) -> Upload:
        """Raises NotFound."""
        ...

    async def append(self, upload_id: UploadId, offset: int, chunks: AsyncIterator[bytes]) -> Upload:
        """Appends the chunks; what has arrived is kept even when `chunks` raises. Raises NotFound, UploadBusy while
        another request appends, OffsetMismatch where the upload has another size than `offset`, and QuotaExceeded,
        which deletes the upload."""
        ...

    async def upload_digest(self, upload_id: UploadId) -> Digest:
        """Of what has arrived so far. Raises NotFound."""
        ...

    async def finish(self, upload_id: UploadId, digest: Digest) -> int:
        """Turns the upload into a blob and returns its size; durable when this returns. Raises NotFound, UploadBusy,
        and DigestMismatch, which deletes the upload."""
        ...

    async def cancel(self, upload_id: UploadId) -> None:
        """Raises NotFound, UploadBusy."""
        ...

    async def touch(self, digest: Digest) -> None:
        """Notes that a blob is used; nothing for an unknown one."""
        ...

    async def remove(self, digest: Digest) -> int:
        """The number of bytes freed; 0 for an unknown blob."""
        ...

    async def blobs(self) -> Sequence[StoredBlob]: ...
    async def uploads(self) -> Sequence[Upload]: ...
    async def usage(self) -> BlobUsage: ...
