"""One download for each digest, however many ask for it: the first request starts it, others join, and all read from
the file as it grows. It ends when its last reader has left; what has arrived is kept, and the next one resumes it.

A file of the web whose digest is not known is downloaded by its source in the same way, and read once it is whole.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field, replace
from typing import BinaryIO, Final

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from homeport.content.cache.decisions import failures_after, retry_seconds
from homeport.content.cache.files import CachedFile, Files, key_of
from homeport.errors import HomeportError, NotFound, PeerUnavailable, TooLarge
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import BlobStore, Incoming, OnBytes, OpenBlob, UploadId, Upstream
from homeport.vocabulary import Digest

BLOCK_BYTES: Final = 1024 * 1024
"""How much is written at once, and becomes visible to readers."""
READ_BYTES: Final = 512 * 1024

log = get_log("homeport.cache")

MakeRoom = Callable[[int], Awaitable[None]]
"""Evicts until so many bytes are free. Raises QuotaExceeded."""


@dataclass(slots=True, eq=False)
class Transfer:
    source: str
    digest: Digest | None
    """None for a file of the web, until it is whole."""
    upload_id: UploadId
    """Made of the digest or the source, so that a download is found again after a restart."""
    size_bytes: int | None = None
    arrived_bytes: int = 0
    """What is in the file."""
    fetched_bytes: int = 0
    """What came over the line."""
    readers: int = 0
    promised: Digest | None = None
    """By the server of a file of the web."""
    is_done: bool = False
    error: HomeportError | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    changed: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def shown(self) -> str:
        """Without what may be the signature of an address."""
        return self.source.partition("?")[0]

    @property
    def readable_bytes(self) -> int:
        """All but the last byte until the whole is verified: no client gets wrong content in full."""
        if self.is_done or self.size_bytes is None:
            return self.arrived_bytes
        return min(self.arrived_bytes, self.size_bytes - 1)

    def notify(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    async def wait(self) -> None:
        """Until something has changed. Raises what ended the download."""
        if self.error is None and not self.is_done:
            await self.changed.wait()
        if self.error is not None:
            raise self.error


@dataclass(slots=True)
class Arriving:
    """Implements `ports.OpenContent` for content on its way."""

    transfer: Transfer
    opened: OpenBlob
    digest: Digest
    size_bytes: int

    @property
    def file(self) -> BinaryIO | None:
        return self.opened.file if self.transfer.is_done else None

    async def chunks(self, offset: int = 0, count: int | None = None) -> AsyncIterator[bytes]:
        end = self.size_bytes if count is None else min(offset + count, self.size_bytes)
        while offset < end:
            ready = min(self.transfer.readable_bytes, end) - offset
            if ready <= 0:
                await self.transfer.wait()
                continue
            content = await run_sync(os.pread, self.opened.file.fileno(), min(ready, READ_BYTES), offset)
            if not content:
                raise PeerUnavailable("A part of a cached download is missing on disk.")
            yield content
            offset += len(content)


@dataclass(slots=True)
class Stored:
    """Implements `ports.OpenContent` for content that is here."""

    opened: OpenBlob
    digest: Digest

    @property
    def size_bytes(self) -> int:
        return self.opened.size_bytes

    @property
    def file(self) -> BinaryIO | None:
        return self.opened.file

    async def chunks(self, offset: int = 0, count: int | None = None) -> AsyncIterator[bytes]:
        end = self.size_bytes if count is None else min(offset + count, self.size_bytes)
        while offset < end:
            part = min(READ_BYTES, end - offset)
            content = await run_sync(os.pread, self.opened.file.fileno(), part, offset)
            if not content:
                raise PeerUnavailable("A cached file is shorter than it was.")
            yield content
            offset += len(content)


@dataclass(slots=True)
class Transfers:
    blobs: BlobStore
    upstream: Upstream
    make_room: MakeRoom
    files: Files
    size_max_bytes: int
    open: dict[UploadId, Transfer] = field(default_factory=dict)
    fetched_bytes: int = 0
    """Since the start, over the line."""
    failed: int = 0
    _tasks: TaskGroup | None = None
    _running: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> None:
        """Downloads while the role runs."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._running.set()
            await anyio.sleep_forever()

    @property
    def missing_bytes(self) -> int:
        """What the downloads under way will still write."""
        return sum(max((each.size_bytes or 0) - each.arrived_bytes, 0) for each in self.open.values())

    @asynccontextmanager
    async def read(self, source: str, digest: Digest) -> AsyncIterator[Arriving]:
        """Joins the download of the digest, or starts it. Returns when its size is known."""
        upload_id = UploadId(digest.replace(":", ""))
        async with self._joined(Transfer(source, digest, upload_id)) as transfer, AsyncExitStack() as stack:
            while transfer.size_bytes is None:
                await transfer.wait()
            opened = await self._file(transfer, digest, stack)
            yield Arriving(transfer, opened, digest, transfer.size_bytes)

    async def whole_file(self, source: str, on_bytes: OnBytes) -> CachedFile:
        """Joins the download of a file of the web, or starts it, and returns when it is whole."""
        async with self._joined(Transfer(source, None, UploadId(f"file{key_of(source)}"))) as transfer:
            while not transfer.is_done:
                on_bytes(transfer.arrived_bytes, transfer.size_bytes or 0)
                await transfer.wait()
        kept = await run_sync(self.files.find, source)
        if kept is None or kept.digest is None:
            raise PeerUnavailable(f"The record of {source} is missing on disk.")
        return kept

    @asynccontextmanager
    async def _joined(self, fresh: Transfer) -> AsyncIterator[Transfer]:
        await self._running.wait()
        transfer = self.open.get(fresh.upload_id)
        while transfer is not None and transfer.scope.cancel_called:
            await transfer.ended.wait()  # its readers have left, and it still writes what has arrived
            transfer = self.open.get(fresh.upload_id)
        if transfer is None:
            transfer = self.open[fresh.upload_id] = fresh
            assert self._tasks is not None
            self._tasks.start_soon(self._fetch, transfer)
        transfer.readers += 1
        try:
            yield transfer
        finally:
            transfer.readers -= 1
            if not transfer.readers and not transfer.is_done:
                transfer.scope.cancel()

    async def _file(self, transfer: Transfer, digest: Digest, stack: AsyncExitStack) -> OpenBlob:
        if not transfer.is_done:
            try:
                return await stack.enter_async_context(self.blobs.open_upload(transfer.upload_id))
            except NotFound:
                await transfer.wait()  # raises where it failed; otherwise it was finished in this moment
        return await stack.enter_async_context(self.blobs.open(digest))

    async def _fetch(self, transfer: Transfer) -> None:
        """Any error reaches the readers of this one alone."""
        with transfer.scope:
            try:
                await self._fetch_whole(transfer)
                transfer.is_done = True
            except HomeportError as error:
                self.failed += 1
                log.warning("download failed", source=transfer.shown, digest=transfer.digest, why=str(error))
                transfer.error = error
            except Exception as error:
                self.failed += 1
                log.exception("download failed because of a fault in Homeport", source=transfer.shown)
                transfer.error = PeerUnavailable(f"{transfer.shown} could not be kept: {type(error).__name__}.")
            finally:
                del self.open[transfer.upload_id]
                transfer.notify()
                transfer.ended.set()

    async def _fetch_whole(self, transfer: Transfer) -> None:
        if (stored := await self._stored_bytes(transfer)) is not None:
            transfer.arrived_bytes = transfer.size_bytes = stored  # finished just before this one began
            return
        await self.blobs.begin(transfer.upload_id)
        transfer.arrived_bytes = (await self.blobs.upload(transfer.upload_id)).size_bytes
        failures = 0
        while True:
            before = transfer.arrived_bytes
            try:
                await self._fetch_rest(transfer)
                break
            except HomeportError as error:
                failures = failures_after(failures, transfer.arrived_bytes - before)
                seconds = retry_seconds(error, failures)
                if seconds is None:
                    raise
                offset, why = transfer.arrived_bytes, str(error)
                log.info("download interrupted, resuming", source=transfer.shown, offset=offset, why=why)
                await anyio.sleep(seconds)
        await self._finish(transfer)

    async def _stored_bytes(self, transfer: Transfer) -> int | None:
        digest = transfer.digest
        if digest is None:
            kept = await run_sync(self.files.find, transfer.source)
            digest = None if kept is None else kept.digest
        return None if digest is None else await self.blobs.size(digest)

    async def _fetch_rest(self, transfer: Transfer) -> None:
        async with self._incoming(transfer) as incoming:
            if transfer.size_bytes is None and incoming.size_bytes is not None:
                await self._expect(transfer, incoming.size_bytes)
            block = bytearray()
            try:
                async for chunk in incoming.chunks():
                    block += chunk
                    self.fetched_bytes += len(chunk)
                    transfer.fetched_bytes += len(chunk)
                    if len(block) >= BLOCK_BYTES:
                        content, block = block, bytearray()
                        await self._write(transfer, content)
            finally:
                # What arrived before the line broke need not come again.
                if block:
                    with anyio.CancelScope(shield=True):
                        await self._write(transfer, block)
        arrived, size = transfer.arrived_bytes, transfer.size_bytes
        if size is not None and arrived < size:
            raise PeerUnavailable(f"{transfer.shown} ended after {arrived} of {size} bytes.")

    async def _expect(self, transfer: Transfer, size_bytes: int) -> None:
        if size_bytes > self.size_max_bytes:
            named = transfer.shown if transfer.digest is None else f"{transfer.digest[:19]}… of {transfer.shown}"
            raise TooLarge(
                f"{named} has {size_bytes} bytes, more than the cache.",
                hint="Give the site a larger one with  --cache-size .",
            )
        await self.make_room(size_bytes - transfer.arrived_bytes)
        transfer.size_bytes = size_bytes
        transfer.notify()

    async def _write(self, transfer: Transfer, content: bytearray) -> None:
        async def once() -> AsyncIterator[bytes]:
            yield bytes(content)

        written = await self.blobs.append(transfer.upload_id, transfer.arrived_bytes, once())
        transfer.arrived_bytes = written.size_bytes
        transfer.notify()

    # --- by digest, and by source -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _incoming(self, transfer: Transfer) -> AsyncIterator[Incoming]:
        if transfer.digest is not None:
            offset = transfer.arrived_bytes
            async with self.upstream.blob(transfer.source, transfer.digest, offset=offset) as incoming:
                yield incoming
            return
        kept = await run_sync(self.files.find, transfer.source)
        validator = "" if kept is None else kept.validator
        if not validator:
            await self._restart(transfer)
        asked = self.upstream.file(transfer.source, offset=transfer.arrived_bytes, validator=validator)
        async with asked as file:
            if file.offset != transfer.arrived_bytes:
                await self._restart(transfer)
            await run_sync(self.files.put, CachedFile(transfer.source, file.name, file.validator))
            transfer.promised = file.promised
            yield file

    async def _restart(self, transfer: Transfer) -> None:
        """What has arrived may be of another version of the file."""
        if transfer.arrived_bytes:
            await self.blobs.cancel(transfer.upload_id)
            await self.blobs.begin(transfer.upload_id)
            transfer.arrived_bytes, transfer.size_bytes = 0, None

    async def _finish(self, transfer: Transfer) -> None:
        digest = transfer.digest or transfer.promised or await self.blobs.upload_digest(transfer.upload_id)
        size = await self.blobs.finish(transfer.upload_id, digest)
        if transfer.digest is None:
            kept = await run_sync(self.files.find, transfer.source) or CachedFile(transfer.source, "", "")
            await run_sync(self.files.put, replace(kept, digest=digest, size_bytes=size))
        transfer.arrived_bytes = transfer.size_bytes = size
