"""What a `BlobStore` promises: whole or not at all, resumed after a crash, bounded, readable while it is removed."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from homeport.adapters.blobs.disk import WRITE_BYTES, DiskBlobs
from homeport.errors import (
    DigestMismatch,
    NotFound,
    OffsetMismatch,
    QuotaExceeded,
    StorageFull,
    UploadBusy,
)
from homeport.ports import BlobUsage, UploadId
from homeport.vocabulary import Digest
from tests.support.disks import small_disk

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 5000


def digest_of(content: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def broken(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    raise ConnectionResetError


@pytest.fixture
def blobs(tmp_path: Path) -> DiskBlobs:
    return DiskBlobs(tmp_path, quota_bytes=8 * 2**20)


async def read(blobs: DiskBlobs, digest: Digest) -> bytes:
    async with blobs.open(digest) as opened:
        content = opened.file.read()
        assert len(content) == opened.size_bytes
        return content


async def test_a_blob_is_there_when_it_is_whole_and_not_before(blobs: DiskBlobs) -> None:
    upload = await blobs.begin()
    await blobs.append(upload, 0, chunks(CONTENT[:10], CONTENT[10:]))
    assert await blobs.size(digest_of(CONTENT)) is None
    assert await blobs.finish(upload, digest_of(CONTENT)) == len(CONTENT)
    assert await read(blobs, digest_of(CONTENT)) == CONTENT
    assert await blobs.usage() == BlobUsage(len(CONTENT), 0, 8 * 2**20)
    with pytest.raises(NotFound):
        await blobs.upload(upload)


async def test_what_does_not_match_its_digest_is_gone(blobs: DiskBlobs) -> None:
    upload = await blobs.begin()
    await blobs.append(upload, 0, chunks(CONTENT))
    with pytest.raises(DigestMismatch):
        await blobs.finish(upload, digest_of(b"other"))
    assert (await blobs.usage()).upload_bytes == 0
    assert await blobs.uploads() == []


async def test_a_broken_line_keeps_what_came_and_another_process_goes_on(blobs: DiskBlobs, tmp_path: Path) -> None:
    upload = await blobs.begin()
    with pytest.raises(ConnectionResetError):
        await blobs.append(upload, 0, broken(CONTENT[:7], CONTENT[7:1000]))
    assert (await blobs.upload(upload)).size_bytes == 1000
    with pytest.raises(OffsetMismatch) as refused:
        await blobs.append(upload, 7, chunks(b"x"))
    assert refused.value.expected == 1000
    later = DiskBlobs(tmp_path, quota_bytes=8 * 2**20)
    await later.append(upload, 1000, chunks(CONTENT[1000:]))
    await later.finish(upload, digest_of(CONTENT))
    assert await read(later, digest_of(CONTENT)) == CONTENT


async def test_the_same_content_twice_takes_its_room_once(blobs: DiskBlobs) -> None:
    for _ in range(2):
        assert await blobs.put(CONTENT) == digest_of(CONTENT)
    upload = await blobs.begin()
    await blobs.append(upload, 0, chunks(CONTENT))
    await blobs.finish(upload, digest_of(CONTENT))
    assert await blobs.usage() == BlobUsage(len(CONTENT), 0, 8 * 2**20)


async def test_the_quota_counts_what_was_there_before_and_leaves_nothing_of_what_is_too_much(tmp_path: Path) -> None:
    await DiskBlobs(tmp_path, quota_bytes=2**30).put(CONTENT)
    blobs = DiskBlobs(tmp_path, quota_bytes=2 * len(CONTENT))
    upload = await blobs.begin()
    with pytest.raises(QuotaExceeded):
        await blobs.append(upload, 0, chunks(CONTENT, b"one byte too much"))
    assert await blobs.usage() == BlobUsage(len(CONTENT), 0, 2 * len(CONTENT))
    assert await blobs.put(b"small") == digest_of(b"small")


async def test_one_request_at_a_time_adds_to_an_upload(blobs: DiskBlobs) -> None:
    upload = await blobs.begin()
    is_open, may_end = anyio.Event(), anyio.Event()

    async def slow() -> AsyncIterator[bytes]:
        is_open.set()
        await may_end.wait()
        yield CONTENT

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(blobs.append, upload, 0, slow())
        await is_open.wait()
        with pytest.raises(UploadBusy):
            await blobs.append(upload, 0, chunks(b"x"))
        with pytest.raises(UploadBusy):
            await blobs.cancel(upload)
        may_end.set()
    assert await blobs.finish(upload, digest_of(CONTENT)) == len(CONTENT)


async def test_whoever_reads_a_blob_reads_it_to_the_end_though_it_is_removed(blobs: DiskBlobs) -> None:
    digest = await blobs.put(CONTENT)
    async with blobs.open(digest) as opened:
        assert await blobs.remove(digest) == len(CONTENT)
        assert opened.file.read() == CONTENT
    assert await blobs.size(digest) is None
    assert await blobs.remove(digest) == 0
    with pytest.raises(NotFound):
        async with blobs.open(digest):
            pass


async def test_an_id_leads_nowhere_else(blobs: DiskBlobs) -> None:
    for wrong in ("../blobs", "..", "", "a/b"):
        with pytest.raises(NotFound):
            await blobs.upload(UploadId(wrong))


async def test_a_full_disk_is_said_and_the_upload_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=3) as disk:
        blobs = DiskBlobs(disk / "content", quota_bytes=2**30)
        ballast = disk / "ballast"
        upload = await blobs.begin()
        content = os.urandom(2 * WRITE_BYTES)
        await blobs.append(upload, 0, chunks(content[:WRITE_BYTES]))
        ballast.write_bytes(bytes(WRITE_BYTES + WRITE_BYTES // 2))
        with pytest.raises(StorageFull):
            await blobs.append(upload, WRITE_BYTES, chunks(content[WRITE_BYTES:]))
        assert (await blobs.upload(upload)).size_bytes == WRITE_BYTES
        assert (await blobs.usage()).upload_bytes == WRITE_BYTES
        ballast.unlink()
        await blobs.append(upload, WRITE_BYTES, chunks(content[WRITE_BYTES:]))
        await blobs.finish(upload, digest_of(content))
        assert await read(blobs, digest_of(content)) == content


KILLED = """
import sys, anyio
from pathlib import Path
from homeport.adapters.blobs.disk import DiskBlobs
async def main():
    blobs = DiskBlobs(Path(sys.argv[1]), quota_bytes=2**30)
    upload = await blobs.begin()
    async def endless():
        yield bytes(range(256)) * 8192
        print(upload, flush=True)
        await anyio.sleep_forever()
    await blobs.append(upload, 0, endless())
anyio.run(main)
"""


def test_an_upload_survives_a_kill_and_is_finished_by_the_next_process(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        upload = UploadId(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    blobs = DiskBlobs(tmp_path, quota_bytes=2**30)
    begun = bytes(range(256)) * 8192

    async def go_on() -> None:
        assert (await blobs.upload(upload)).size_bytes == len(begun)
        await blobs.append(upload, len(begun), chunks(b"the rest"))
        await blobs.finish(upload, digest_of(begun + b"the rest"))
        assert await read(blobs, digest_of(begun + b"the rest")) == begun + b"the rest"

    anyio.run(go_on)
