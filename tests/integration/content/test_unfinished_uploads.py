"""Uploads that nobody finishes are bounded, and keep nobody else from pushing."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from homeport.adapters.blobs.disk import DiskBlobs
from homeport.content.registry import service as module
from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.repositories import Repositories
from homeport.content.registry.service import RegistryService
from homeport.ports import Upload, UploadId
from homeport.vocabulary import Digest
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

CONTENT = b"a layer"
DIGEST = Digest("sha256:" + hashlib.sha256(CONTENT).hexdigest())


class CountedBlobs(DiskBlobs):
    listings = 0

    async def uploads(self) -> list[Upload]:
        self.listings += 1
        return list(await super().uploads())


@pytest.fixture
def blobs(tmp_path: Path) -> CountedBlobs:
    return CountedBlobs(tmp_path, quota_bytes=2**30)


@pytest.fixture
def service(blobs: CountedBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryService:
    monkeypatch.setattr(module, "UPLOADS_MAX", 20)
    return RegistryService(blobs, Repositories(tmp_path / "repositories"))


async def some(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_a_client_that_begins_uploads_in_a_loop_blocks_nobodys_push(
    service: RegistryService, blobs: CountedBlobs
) -> None:
    slow = await service.begin("team/slow")
    await service.append("team/slow", slow, 0, some(CONTENT[:3]))
    for _ in range(100):
        await service.begin("team/broken")
    upload = await service.begin("team/app")
    await service.append("team/app", upload, 0, some(CONTENT))
    await service.finish("team/app", upload, DIGEST)
    assert await service.blob_size("team/app", DIGEST) == len(CONTENT)
    # What has content outlives what has none, however old it is.
    await service.append("team/slow", slow, 3, some(CONTENT[3:]))
    await service.finish("team/slow", slow, DIGEST)
    assert blobs.listings <= 52, "they are listed for a tenth of the beginnings at most, of which here are two"
    assert len(await blobs.uploads()) <= 20


async def test_beginnings_at_once_keep_the_bound(service: RegistryService, blobs: CountedBlobs) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(service.begin, "team/app")
    assert len(await blobs.uploads()) <= 20


async def test_finished_and_cancelled_uploads_take_no_room(service: RegistryService, blobs: CountedBlobs) -> None:
    kept = await service.begin("team/kept")
    for number in range(40):
        upload = await service.begin("team/app")
        if number % 2:
            await service.cancel("team/app", upload)
        else:
            await service.append("team/app", upload, 0, some(CONTENT))
            await service.finish("team/app", upload, DIGEST)
    assert blobs.listings == 1, "only after the start"
    assert [each.id for each in await blobs.uploads()] == [kept]


async def test_uploads_that_are_being_received_are_not_discarded(
    service: RegistryService, blobs: CountedBlobs
) -> None:
    may_end, started = anyio.Event(), 0

    async def slowly(upload: UploadId) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            nonlocal started
            started += 1
            await may_end.wait()
            yield CONTENT

        await service.append("team/app", upload, 0, chunks())

    uploads = [await service.begin("team/app") for _ in range(20)]
    async with anyio.create_task_group() as tasks:
        for upload in uploads:
            tasks.start_soon(slowly, upload)
        await eventually(lambda: started == len(uploads))
        with pytest.raises(RegistryProblem, match="20 uploads are under way"):
            await service.begin("team/app")
        may_end.set()
    await service.begin("team/app")
    assert {each.size_bytes for each in await blobs.uploads()} <= {0, len(CONTENT)}
