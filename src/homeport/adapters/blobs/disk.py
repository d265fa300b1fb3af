"""Blobs as files, named by their digest.

    blobs/sha256/ab/abcd…    whole, verified, never changed
    uploads/ID               the part of one that has arrived; its size is the offset

A blob appears by a rename after its bytes are on the disk, so that a crash never leaves half of one. Uploads are
hashed as they arrive; after a restart the file is read once to restore the hash. Files are read and written in
threads, hashing included.
"""

import hashlib
import os
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.files.disk import disk_problems
from homeport.errors import DigestMismatch, NotFound, OffsetMismatch, QuotaExceeded, UploadBusy
from homeport.lazy_dataclass import dataclass
from homeport.ports import BlobUsage, OpenBlob, StoredBlob, Upload, UploadId
from homeport.vocabulary import Digest

WRITE_BYTES: Final = 1024 * 1024
"""How much is buffered for one call of a thread."""
READ_BYTES: Final = 4 * 1024 * 1024
HASHES_MAX: Final = 1_000
"""How many unfinished uploads keep their hash in memory; for others the file is read again."""
DEFAULTS: Final = "sha256"
UPLOAD_ID_LENGTH_MAX: Final = 200


@dataclass(slots=True)
class _Hashed:
    """The hash of an upload's first bytes."""

    hash: Any
    size_bytes: int


class DiskBlobs:
    """Implements `ports.BlobStore`."""

    def __init__(self, root: Path, *, quota_bytes: int) -> None:
        self._root = root
        self._blobs = root / "blobs"
        self._uploads = root / "uploads"
        self._quota_bytes = quota_bytes
        self._claimed: set[UploadId] = set()
        self._hashes: OrderedDict[UploadId, _Hashed] = OrderedDict()
        self._lock = threading.Lock()
        self._used: tuple[int, int] | None = None
        """Bytes of blobs and of uploads; None until they were counted."""

    async def size(self, digest: Digest) -> int | None:
        return await run_sync(_size_of, self._path(digest))

    @asynccontextmanager
    async def open(self, digest: Digest) -> AsyncIterator[OpenBlob]:
        try:
            file = await run_sync(lambda: self._path(digest).open("rb"))
        except FileNotFoundError as error:
            raise NotFound(f"There is no blob {digest}.") from error
        with file:
            yield OpenBlob(file, os.fstat(file.fileno()).st_size)

    async def put(self, content: bytes, *, algorithm: str = DEFAULTS) -> Digest:
        digest = Digest(f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}")
        if await self.size(digest) is None:
            upload_id = await self.begin()

            async def all_of_it() -> AsyncIterator[bytes]:
                yield content

            await self.append(upload_id, 0, all_of_it())
            await self.finish(upload_id, digest)
        return digest

    async def begin(self, upload_id: UploadId | None = None) -> UploadId:
        chosen = upload_id or UploadId(secrets.token_hex(16))

        def create() -> None:
            with disk_problems(self._root):
                self._uploads.mkdir(parents=True, exist_ok=True)
                with self._upload_path(chosen).open("ab"):
                    pass

        await run_sync(create)
        return chosen

    @asynccontextmanager
    async def open_upload(self, upload_id: UploadId) -> AsyncIterator[OpenBlob]:
        try:
            file = await run_sync(lambda: self._upload_path(upload_id).open("rb", buffering=0))
        except FileNotFoundError as error:
            raise NotFound(f"There is no upload {upload_id}.") from error
        with file:
            yield OpenBlob(file, os.fstat(file.fileno()).st_size)

    async def upload(self, upload_id: UploadId) -> Upload:
        return await run_sync(self._seen, upload_id)

    async def append(self, upload_id: UploadId, offset: int, chunks: AsyncIterator[bytes]) -> Upload:
        with self._claim(upload_id):
            seen = await run_sync(self._seen, upload_id)
            if seen.size_bytes != offset:
                raise OffsetMismatch(given=offset, expected=seen.size_bytes)
            buffer = bytearray()
            try:
                async for chunk in chunks:
                    buffer += chunk
                    if len(buffer) >= WRITE_BYTES:
                        content, buffer = buffer, bytearray()
                        await run_sync(self._write, upload_id, content)
            finally:
                # What arrived before the connection broke is kept: the client resumes from there.
                if buffer:
                    with anyio.CancelScope(shield=True):
                        await run_sync(self._write, upload_id, buffer)
            return await run_sync(self._seen, upload_id)

    async def upload_digest(self, upload_id: UploadId) -> Digest:
        with self._claim(upload_id):
            hashed = await run_sync(self._caught_up, upload_id)
            return Digest(f"{DEFAULTS}:{hashed.hash.hexdigest()}")

    async def finish(self, upload_id: UploadId, digest: Digest) -> int:
        with self._claim(upload_id):
            return await run_sync(self._finish, upload_id, digest)

    async def cancel(self, upload_id: UploadId) -> None:
        with self._claim(upload_id):
            await run_sync(self._seen, upload_id)
            await run_sync(self._drop, upload_id)

    async def touch(self, digest: Digest) -> None:
        def renew() -> None:
            with suppress(FileNotFoundError):
                os.utime(self._path(digest))

        await run_sync(renew)

    async def remove(self, digest: Digest) -> int:
        return await run_sync(self._remove, digest)

    async def blobs(self) -> Sequence[StoredBlob]:
        return await run_sync(lambda: list(self._list_blobs()))

    async def uploads(self) -> Sequence[Upload]:
        return await run_sync(lambda: list(self._list_uploads()))

    async def usage(self) -> BlobUsage:
        await run_sync(self._counted)
        return self.usage_now()

    def usage_now(self) -> BlobUsage:
        """Without disk access: empty until the first write or call of `usage`."""
        blobs, uploads = self._used or (0, 0)
        return BlobUsage(blobs, uploads, self._quota_bytes)

    # --- in threads -------------------------------------------------------------------------------------------

    def _seen(self, upload_id: UploadId) -> Upload:
        try:
            status = self._upload_path(upload_id).stat()
        except FileNotFoundError as error:
            raise NotFound(f"There is no upload {upload_id}.") from error
        return Upload(upload_id, status.st_size, _moment(status.st_mtime))

    def _write(self, upload_id: UploadId, content: bytearray) -> None:
        try:
            self._reserve(len(content))
        except QuotaExceeded:
            self._drop(upload_id)
            raise
        path = self._upload_path(upload_id)
        hashed = self._caught_up(upload_id)
        try:
            with disk_problems(self._root), path.open("r+b", buffering=0) as file:
                file.seek(hashed.size_bytes)
                _write_all(file.fileno(), content)
        except BaseException:
            self._moved(uploads=-len(content))
            with suppress(OSError):
                os.truncate(path, hashed.size_bytes)
            raise
        hashed.hash.update(content)
        hashed.size_bytes += len(content)

    def _finish(self, upload_id: UploadId, digest: Digest) -> int:
        self._counted()
        size = self._seen(upload_id).size_bytes
        path, algorithm = self._upload_path(upload_id), digest.partition(":")[0]
        found = self._caught_up(upload_id).hash if algorithm == DEFAULTS else _hash_file(path, algorithm)
        if f"{algorithm}:{found.hexdigest()}" != digest:
            self._drop(upload_id)
            raise DigestMismatch(f"The {size} bytes that were sent do not match the digest {digest}.")
        target = self._path(digest)
        if target.exists():
            self._drop(upload_id)
            return size
        with disk_problems(self._root):
            if not target.parent.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                _sync(target.parent.parent)
            _sync(path)
            path.replace(target)
            _sync(target.parent)
        self._hashes.pop(upload_id, None)
        self._moved(blobs=size, uploads=-size)
        return size

    def _drop(self, upload_id: UploadId) -> None:
        self._counted()
        path = self._upload_path(upload_id)
        size = _size_of(path) or 0
        path.unlink(missing_ok=True)
        self._hashes.pop(upload_id, None)
        self._moved(uploads=-size)

    def _remove(self, digest: Digest) -> int:
        path = self._path(digest)
        self._counted()
        size = _size_of(path)
        if size is None:
            return 0
        path.unlink(missing_ok=True)
        self._moved(blobs=-size)
        return size

    def _caught_up(self, upload_id: UploadId) -> _Hashed:
        """The hash of the whole upload; its file is read where another process has received it."""
        path = self._upload_path(upload_id)
        hashed = self._hashes.get(upload_id)
        size = _size_of(path)
        if size is None:
            raise NotFound(f"There is no upload {upload_id}.")
        if hashed is None or hashed.size_bytes != size:
            hashed = self._hashes[upload_id] = _Hashed(_hash_file(path, DEFAULTS), size)
            while len(self._hashes) > HASHES_MAX:
                self._hashes.popitem(last=False)
        return hashed

    def _reserve(self, size_bytes: int) -> None:
        self._counted()
        with self._lock:
            assert self._used is not None
            if sum(self._used) + size_bytes > self._quota_bytes:
                raise QuotaExceeded(f"The quota of {shown_bytes(self._quota_bytes)} is used up; nothing was stored.")
            self._used = (self._used[0], self._used[1] + size_bytes)

    def _counted(self) -> None:
        with self._lock:
            if self._used is None:
                blobs = sum(each.size_bytes for each in self._list_blobs())
                self._used = (blobs, sum(each.size_bytes for each in self._list_uploads()))

    def _moved(self, *, blobs: int = 0, uploads: int = 0) -> None:
        """Call it after `_counted`, which sees the disk as it was before."""
        with self._lock:
            assert self._used is not None
            self._used = (max(self._used[0] + blobs, 0), max(self._used[1] + uploads, 0))

    def _list_blobs(self) -> Iterator[StoredBlob]:
        """Other files, such as a network disk or a desktop leaves in any folder, are none of ours."""
        for path in self._blobs.glob("*/*/*"):
            digest = Digest(f"{path.parent.parent.name}:{path.name}")
            with suppress(FileNotFoundError):
                status = path.stat()
                if _is_named(digest) and stat.S_ISREG(status.st_mode):
                    yield StoredBlob(digest, status.st_size, _moment(status.st_mtime))

    def _list_uploads(self) -> Iterator[Upload]:
        for path in self._uploads.glob("*"):
            with suppress(NotFound):
                if path.is_file():
                    yield self._seen(UploadId(path.name))

    # --- names ------------------------------------------------------------------------------------------------

    @contextmanager
    def _claim(self, upload_id: UploadId) -> Iterator[None]:
        if upload_id in self._claimed:
            raise UploadBusy
        self._claimed.add(upload_id)
        try:
            yield
        finally:
            self._claimed.discard(upload_id)

    def _path(self, digest: Digest) -> Path:
        algorithm, _, digits = digest.partition(":")
        assert _is_named(digest), "a digest is checked where it comes in"
        return self._blobs / algorithm / digits[:2] / digits

    def _upload_path(self, upload_id: UploadId) -> Path:
        if not (upload_id.isascii() and upload_id.isalnum() and len(upload_id) <= UPLOAD_ID_LENGTH_MAX):
            raise NotFound("There is no such upload.")
        return self._uploads / upload_id


def _is_named(digest: Digest) -> bool:
    algorithm, _, digits = digest.partition(":")
    return digits.isascii() and digits.isalnum() and algorithm.isascii() and algorithm.isalnum()


def shown_bytes(size: int) -> str:
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _hash_file(path: Path, algorithm: str) -> Any:
    found = hashlib.new(algorithm)
    with path.open("rb", buffering=0) as file:
        while content := file.read(READ_BYTES):
            found.update(content)
    return found


def _write_all(descriptor: int, content: bytearray) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
