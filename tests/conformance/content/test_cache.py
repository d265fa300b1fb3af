"""What a `ContentCache` promises: fetched once however many ask, verified, resumed, bounded, and there when its
source is not. The source is a real socket that misbehaves as it is told."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from homeport.content.cache.cache import Cache
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import (
    DigestMismatch,
    InvalidInput,
    NotFound,
    PeerUnavailable,
    QuotaExceeded,
    Refused,
    TooLarge,
)
from homeport.vocabulary import Digest
from tests.support.caches import running_cache
from tests.support.scripted_registry import HTML, Fault, ScriptedRegistry, digest_of, scripted_registry

pytestmark = pytest.mark.anyio

MEGA = 2**20
LAYER = os.urandom(5 * MEGA)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def registry() -> AsyncIterator[ScriptedRegistry]:
    async with scripted_registry() as running:
        yield running


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[Cache]:
    async with running_cache(tmp_path) as running:
        yield running


async def read(cache: Cache, source: str, digest: Digest, *, offset: int = 0, count: int | None = None) -> bytes:
    content = b""
    async with cache.open(source, digest) as opened:
        async for chunk in opened.chunks(offset, count):
            content += chunk
    return content


async def nothing_half_written(cache: Cache) -> bool:
    usage = await cache.blobs.usage()
    return usage.upload_bytes == 0 and not cache.transfers.open


async def test_what_many_ask_for_at_once_is_fetched_once_and_read_while_it_arrives(
    cache: Cache, registry: ScriptedRegistry
) -> None:
    registry.push("1", LAYER)
    registry.gate = asyncio.Event()
    firsts: list[bytes] = []
    found: list[bytes] = []

    async def one() -> None:
        async with cache.open(registry.repository, digest_of(LAYER)) as opened:
            content = b""
            async for chunk in opened.chunks():
                content += chunk
                if len(content) == len(chunk):
                    firsts.append(chunk)
                    if len(firsts) == 4:
                        assert opened.file is None, "it is still on its way"
                        assert registry.gate is not None
                        registry.gate.set()
            found.append(content)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one)
    assert found == [LAYER] * 4
    assert registry.bytes_sent == len(LAYER)
    registry.always = Fault(500)
    assert await read(cache, registry.repository, digest_of(LAYER)) == LAYER


async def test_a_download_that_breaks_again_and_again_costs_its_size(
    cache: Cache, registry: ScriptedRegistry
) -> None:
    registry.push("1", LAYER)
    registry.faults = [Fault(break_after=MEGA + 1), Fault(500), Fault(break_after=10), Fault(break_after=2 * MEGA)]
    assert await read(cache, registry.repository, digest_of(LAYER)) == LAYER
    assert registry.bytes_sent == len(LAYER)


async def test_a_download_is_resumed_by_the_next_process(tmp_path: Path, registry: ScriptedRegistry) -> None:
    registry.push("1", LAYER)
    async with running_cache(tmp_path) as cache:
        registry.faults = [Fault(break_after=3 * MEGA), Fault(403)]
        with pytest.raises(Refused):
            await read(cache, registry.repository, digest_of(LAYER))
    async with running_cache(tmp_path) as cache:
        assert await read(cache, registry.repository, digest_of(LAYER)) == LAYER
    assert registry.bytes_sent == len(LAYER)


async def test_a_reader_that_leaves_does_not_end_the_download_of_others(
    cache: Cache, registry: ScriptedRegistry
) -> None:
    registry.push("1", LAYER)
    registry.gate = asyncio.Event()
    async with anyio.create_task_group() as tasks:
        async with cache.open(registry.repository, digest_of(LAYER)) as staying:
            async with cache.open(registry.repository, digest_of(LAYER)) as leaving:
                await anext(aiter(leaving.chunks()))
            registry.gate.set()
            assert b"".join([chunk async for chunk in staying.chunks()]) == LAYER
        tasks.cancel_scope.cancel()
    assert registry.bytes_sent == len(LAYER)


async def test_a_download_without_readers_stops_and_is_resumed(cache: Cache, registry: ScriptedRegistry) -> None:
    registry.push("1", LAYER)
    registry.gate = asyncio.Event()
    async with cache.open(registry.repository, digest_of(LAYER)) as opened:
        await anext(aiter(opened.chunks()))
    while cache.transfers.open:
        await anyio.wait_all_tasks_blocked()
    kept = (await cache.blobs.usage()).upload_bytes
    assert 0 < kept < len(LAYER)
    registry.gate.set()
    before = cache.transfers.fetched_bytes
    assert await read(cache, registry.repository, digest_of(LAYER)) == LAYER
    assert cache.transfers.fetched_bytes - before == len(LAYER) - kept


async def test_parts_are_read_of_what_is_here_and_of_what_arrives(cache: Cache, registry: ScriptedRegistry) -> None:
    registry.push("1", LAYER)
    for _ in range(2):
        assert await read(cache, registry.repository, digest_of(LAYER), offset=MEGA, count=10) == LAYER[MEGA:][:10]
        assert await cache.ensure(registry.repository, digest_of(LAYER)) == len(LAYER)


async def test_progress_is_reported_up_to_the_whole(cache: Cache, registry: ScriptedRegistry) -> None:
    registry.push("1", LAYER)
    seen: list[tuple[int, int]] = []
    await cache.ensure(registry.repository, digest_of(LAYER), on_bytes=lambda done, whole: seen.append((done, whole)))
    assert seen[-1] == (len(LAYER), len(LAYER))
    assert seen == sorted(seen)


async def test_a_file_is_fetched_from_a_plain_address(cache: Cache, registry: ScriptedRegistry) -> None:
    registry.push("1", LAYER)
    source = f"http://{registry.host}/v2/team/app/blobs/{digest_of(LAYER)}"
    assert await cache.ensure(source, digest_of(LAYER), user="model/tiny") == len(LAYER)


WRONG = os.urandom(len(LAYER))


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Fault(200, {}, WRONG), DigestMismatch, "do not match the digest"),
        (Fault(401, {"WWW-Authenticate": 'Basic realm="x"'}), Refused, "does not let us pull team/app"),
        (Fault(403), Refused, "podman login"),
        (Fault(404), NotFound, "has no team/app"),
        (Fault(429, {"Retry-After": "120"}), PeerUnavailable, "HTTP 429"),
        (Fault(500), PeerUnavailable, "HTTP 500"),
        (Fault(200, {"Content-Type": "text/html"}, HTML), PeerUnavailable, "answered with a web page"),
        (Fault(break_after=1), PeerUnavailable, "did not send all"),
        (Fault(206, {"Content-Range": "bytes 7-9/10"}, b"abc"), InvalidInput, ""),
    ],
)
async def test_a_bad_answer_is_one_sentence_and_harms_nothing_else(
    cache: Cache,
    registry: ScriptedRegistry,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    error: type[Exception],
    words: str,
) -> None:
    monkeypatch.setattr("homeport.content.cache.decisions.RETRY", BackoffPolicy(0.0, 15.0))
    registry.push("1", LAYER)
    other = os.urandom(MEGA)
    registry.push("2", other)
    async with cache.open(registry.repository, digest_of(other)) as opened:
        registry.always = fault
        with pytest.raises(error) as raised:
            await read(cache, registry.repository, digest_of(LAYER))
        assert words in f"{raised.value} {getattr(raised.value, 'hint', '') or ''}"
        assert b"".join([chunk async for chunk in opened.chunks()]) == other
    assert await cache.blobs.size(digest_of(LAYER)) is None
    registry.always = None
    assert await read(cache, registry.repository, digest_of(LAYER)) == LAYER


async def test_wrong_content_is_never_given_in_full(cache: Cache, registry: ScriptedRegistry) -> None:
    registry.push("1", LAYER)
    registry.faults = [Fault(200, {}, WRONG)]
    received = 0
    with pytest.raises(DigestMismatch):
        async with cache.open(registry.repository, digest_of(LAYER)) as opened:
            async for chunk in opened.chunks():
                received += len(chunk)
    assert received < len(LAYER)
    assert await nothing_half_written(cache)


async def test_a_requested_wait_is_waited_for(cache: Cache, registry: ScriptedRegistry) -> None:
    registry.push("1", LAYER)
    registry.faults = [Fault(429, {"Retry-After": "1"})]
    assert await read(cache, registry.repository, digest_of(LAYER)) == LAYER


# --- manifests ------------------------------------------------------------------------------------------------


async def test_a_tag_is_looked_up_each_time_and_its_manifest_fetched_when_it_moved(
    cache: Cache, registry: ScriptedRegistry
) -> None:
    first = registry.push("latest", b"one")
    assert (await cache.manifest(registry.repository, "latest")).digest == first
    assert (await cache.manifest(registry.repository, "latest")).digest == first
    assert [request.partition(" ")[0] for request in registry.requests] == ["GET", "HEAD"]
    second = registry.push("latest", b"two")
    assert (await cache.manifest(registry.repository, "latest")).digest == second


async def test_the_known_manifest_of_a_tag_is_served_while_upstream_is_gone(
    cache: Cache, registry: ScriptedRegistry
) -> None:
    digest = registry.push("1.0", b"one")
    await cache.manifest(registry.repository, "1.0")
    for fault in (
        Fault(500),
        Fault(429, {"Retry-After": "9"}),
        Fault(401),
        Fault(200, {"Content-Type": "text/html"}),
    ):
        registry.always = fault
        assert (await cache.manifest(registry.repository, "1.0")).digest == digest
    assert (await cache.manifest(registry.repository, digest)).digest == digest
    registry.always = Fault(404)
    with pytest.raises(NotFound):
        await cache.manifest(registry.repository, "1.0")


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Fault(200, {"Docker-Content-Digest": digest_of(b"x")}, b"{}"), DigestMismatch, "does not match its digest"),
        (Fault(200, {"Content-Type": "text/html"}, HTML), PeerUnavailable, "web page"),
        (Fault(200, {}, b"not json"), InvalidInput, "it is not JSON"),
        (Fault(200, {}, b"{}"), InvalidInput, "neither an image's nor an index"),
        (Fault(200, {}, b"[" * 100_000), InvalidInput, "it is not JSON"),
        (Fault(200, {}, b" " * (4 * MEGA + 1)), TooLarge, "bytes that are accepted"),
    ],
)
async def test_a_bad_manifest_is_one_sentence(
    cache: Cache, registry: ScriptedRegistry, fault: Fault, error: type[Exception], words: str
) -> None:
    digest = registry.push("1.0", b"one")
    registry.faults = [fault]
    with pytest.raises(error, match=words):
        await cache.manifest(registry.repository, "1.0")
    assert await nothing_half_written(cache)
    assert (await cache.manifest(registry.repository, "1.0")).digest == digest


async def test_concurrent_lookups_of_a_tag_are_one(cache: Cache, registry: ScriptedRegistry) -> None:
    registry.push("1.0", b"one")
    registry.gate = asyncio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(cache.manifest, registry.repository, "1.0")
        await registry.asked.wait()
        registry.gate.set()
    assert len(registry.requests) == 1


# --- space ----------------------------------------------------------------------------------------------------


async def test_what_a_live_user_needs_survives_what_others_fetch(tmp_path: Path, registry: ScriptedRegistry) -> None:
    deployed, old, new = os.urandom(2 * MEGA), os.urandom(2 * MEGA), os.urandom(2 * MEGA)
    registry.push("deployed", deployed)
    async with running_cache(tmp_path, size=5 * MEGA) as cache:
        live = {"component/a"}

        async def users() -> set[str]:
            return live

        cache.protect(users)
        await cache.manifest(registry.repository, "deployed", user="component/a")
        for content in (deployed, old):
            registry.push("x", content)
            await cache.ensure(registry.repository, digest_of(content))
        registry.push("x", new)
        await cache.ensure(registry.repository, digest_of(new))
        assert await cache.blobs.size(digest_of(old)) is None, "the oldest that nobody needs"
        assert await cache.blobs.size(digest_of(deployed)) == len(deployed)
        await cache.manifest(registry.repository, "x", user="component/b")
        live |= {"component/b"}
        registry.push("y", old)
        with pytest.raises(QuotaExceeded, match="full of what is deployed"):
            await cache.ensure(registry.repository, digest_of(old))
        assert (await cache.usage()).protected_bytes > 4 * MEGA
        live.clear()
        assert await cache.ensure(registry.repository, digest_of(old)) == len(old)


async def test_content_larger_than_the_cache_is_refused_before_it_is_fetched(
    tmp_path: Path, registry: ScriptedRegistry
) -> None:
    registry.push("1", LAYER)
    async with running_cache(tmp_path, size=MEGA) as cache:
        with pytest.raises(TooLarge, match="more than the cache"):
            await cache.ensure(registry.repository, digest_of(LAYER))
        assert await nothing_half_written(cache)


@pytest.mark.parametrize("digest", ["sha256:../../etc/passwd", "md5:00", "sha256:" + "a" * 63, ""])
async def test_a_digest_that_is_none_is_refused(cache: Cache, registry: ScriptedRegistry, digest: str) -> None:
    with pytest.raises(InvalidInput):
        await cache.ensure(registry.repository, Digest(digest))
    assert not registry.requests


async def test_a_source_that_is_none_is_refused(cache: Cache) -> None:
    for source in ("ftp://x/y", "nothing", "https://user:password@host/x", "oci://UPPER CASE/x"):
        with pytest.raises(InvalidInput):
            await cache.ensure(source, digest_of(b""))
