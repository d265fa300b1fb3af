"""What lies on the disk of a site's cache, or goes wrong there, harms one download and never the site."""

from pathlib import Path

import pytest

from homeport.content.cache.files import CachedFile, Files, key_of
from homeport.content.cache.uses import Used, Users
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import HomeportError, PeerUnavailable
from homeport.vocabulary import Digest
from tests.support.caches import running_cache

pytestmark = pytest.mark.anyio

SOURCE = "https://models.example/tiny.gguf"
DIGEST = Digest("sha256:" + "a" * 64)
SPOILT = [b"", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"source": 1e999}', b"1" * 5_000]


@pytest.mark.parametrize("content", SPOILT)
def test_a_damaged_record_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / key_of(SOURCE)).write_bytes(content)
    files = Files(tmp_path / "files")
    assert files.find(SOURCE) is None
    files.put(CachedFile(SOURCE, "tiny.gguf", ""))
    assert files.find(SOURCE) is not None
    users = Users(tmp_path / "users")
    users.note("somebody", Used("host/app", DIGEST))
    (only,) = (tmp_path / "users").iterdir()
    only.write_bytes(content)
    assert users.of({"somebody"}) == set()
    users.forget_others(set())


async def test_a_fault_of_the_disk_ends_its_download_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a full disk, which has words of its own: a folder where a file should be."""
    monkeypatch.setattr("homeport.content.cache.decisions.RETRY", BackoffPolicy(0.01, 15.0))
    async with running_cache(tmp_path / "cache") as cache:
        (tmp_path / "cache" / "uploads" / DIGEST.replace(":", "")).mkdir(parents=True)
        for _ in range(2):
            with pytest.raises(PeerUnavailable, match="could not be kept"):
                async with cache.open("oci://127.0.0.1:9/app", DIGEST):
                    pass
        with pytest.raises(HomeportError):
            await cache.file(SOURCE.replace("models.example", "127.0.0.1:9"), on_bytes=lambda done, total: None)
