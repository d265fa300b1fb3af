"""What somebody, or a disk, has put into the registry's folder: it costs no content, and never central."""

import hashlib
import json
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from homeport.adapters.blobs.disk import DiskBlobs
from homeport.content.registry.collection import collect
from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.manifests import OCI_MANIFEST
from homeport.content.registry.repositories import Repositories
from homeport.content.registry.service import RegistryService
from homeport.content.registry.uses import Uses
from homeport.errors import HomeportError, NotFound
from homeport.ports import UploadId
from homeport.vocabulary import Digest

pytestmark = pytest.mark.anyio

SPOILT = [b"", b"[]", b"null", b"{}", b'{"mediaType": 1, "subject": "x"}', b"\xff", b"[" * 100_000]


async def pushed(service: RegistryService, name: str, tag: str, content: bytes) -> Digest:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    digest = Digest("sha256:" + hashlib.sha256(content).hexdigest())
    upload = await service.begin(name)
    await service.append(name, upload, 0, chunks())
    await service.finish(name, upload, digest)
    config = {"mediaType": "application/x", "digest": digest, "size": len(content)}
    body = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []}
    return (await service.put_manifest(name, tag, json.dumps(body).encode(), OCI_MANIFEST)).digest


def opened(folder: Path) -> RegistryService:
    return RegistryService(DiskBlobs(folder, quota_bytes=2**30), Repositories(folder / "repositories"))


def age(folder: Path) -> None:
    then = time.time() - 7 * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


async def no_uses() -> Uses:
    return Uses()


@pytest.mark.parametrize("content", SPOILT)
@pytest.mark.parametrize("part", ["_manifests", "_tags"])
async def test_a_damaged_record_keeps_its_repository_and_others_are_collected(
    tmp_path: Path, part: str, content: bytes
) -> None:
    service = opened(tmp_path)
    kept = await pushed(service, "team/app", "one", b"one")
    await pushed(service, "team/other", "one", b"two")
    service.repositories.drop_tag("team/other", "one")
    (record,) = (tmp_path / "repositories" / "team/app" / part).iterdir()
    record.write_bytes(content)
    age(tmp_path)
    collected = await collect(service, no_uses, datetime.now(UTC))
    assert collected.manifests == 1
    assert await service.blobs.size(kept) is not None
    assert len(await service.blobs.blobs()) == 2, "manifest and config of the damaged repository"
    with pytest.raises(RegistryProblem):
        await service.manifest("team/app", "one")
    again = await pushed(service, "team/app", "two", b"one")
    assert (await service.manifest("team/app", "two")).digest == again == kept


async def test_files_that_are_none_of_the_registrys_are_left_alone(tmp_path: Path) -> None:
    service = opened(tmp_path)
    await pushed(service, "team/app", "one", b"one")
    (blob,) = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file() and path.stat().st_size == 3]
    strange = [blob.with_name(".nfs000000012345"), blob.with_name("copy of it"), tmp_path / "uploads" / "lost+found"]
    for path in strange[:2]:
        path.write_bytes(b"x")
    strange[2].mkdir(parents=True, exist_ok=True)
    (blob.parent / "folder").mkdir()
    age(tmp_path)
    await collect(service, no_uses, datetime.now(UTC) + timedelta(days=2))
    assert all(path.exists() for path in strange)


@pytest.mark.parametrize("upload", ["x" * 5_000, "²" * 20, "../../etc/passwd", "a.b", ""])
async def test_an_upload_that_cannot_be_is_not_found(tmp_path: Path, upload: str) -> None:
    with pytest.raises(HomeportError) as raised:
        await opened(tmp_path).blobs.upload(UploadId(upload))
    assert isinstance(raised.value, NotFound)
