"""Every engine pulls an image through the site, without a change of its configuration, under its own name."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from homeport.adapters.registry.image_mirror import ImageMirror
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.errors import FetchDirectly, NotFound, WorkFailed
from homeport.ports import ContentManifest, ContentSource, Incoming, IncomingFile, OpenContent, Upstream
from homeport.vocabulary import Digest
from tests.conformance.runtime.stands import ImageStand
from tests.support.caches import running_cache
from tests.support.engines import engine_environment

pytestmark = pytest.mark.anyio

ELSEWHERE = "registry.example:5000"
"""Nobody can reach it: what is pulled from there came through the site."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Renamed:
    """A site's content, of a registry on loopback under another name."""

    content: ContentSource
    host: str
    asked: int = 0

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        self.asked += 1
        return await self.content.manifest(repository.replace(ELSEWHERE, self.host), reference, user=user)

    @asynccontextmanager
    async def open(self, source: str, digest: Digest, *, user: str = "") -> AsyncIterator[OpenContent]:
        async with self.content.open(source.replace(ELSEWHERE, self.host), digest, user=user) as opened:
            yield opened


class Refusing:
    """A site that cannot help."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        raise self.error

    def open(self, source: str, digest: Digest, *, user: str = "") -> AbstractAsyncContextManager[OpenContent]:
        raise self.error


@pytest.fixture(params=["podman", "docker", "containerd"])
def options(request: pytest.FixtureRequest) -> tuple[str, EngineOptions]:
    socket: Path = request.getfixturevalue(f"{request.param}_socket")
    return request.param, EngineOptions(environment=engine_environment(), socket=socket)


async def pulled(stand: ImageStand) -> None:
    async with stand.opened() as runtime:
        workload = await stand.runs()
        try:
            await runtime.prepare(workload, lambda step, message, done, whole: None)
            await runtime.apply(workload, lambda step, message, done, whole: None)
            (seen,) = await runtime.observe(stand.deployment_id)
            assert seen.is_running
        finally:
            await runtime.remove(stand.deployment_id, "web", remove_images=True)


async def test_an_image_comes_through_the_site_and_has_its_own_name(
    options: tuple[str, EngineOptions], image: str, registry_host: str, tmp_path: Path
) -> None:
    kind, given = options
    async with running_cache(tmp_path / "cache") as cache:
        content = Renamed(cache, registry_host)
        stand = ImageStand(
            kind, tmp_path, registry_host, replace(given, mirror=ImageMirror(content)),
            image=image.replace(registry_host, ELSEWHERE),
        )  # fmt: skip
        await pulled(stand)
        assert content.asked
        assert cache.counters.misses, "its manifest at least: the engine may have its layers from before"


async def test_a_site_that_cannot_help_leaves_it_to_the_engine(
    options: tuple[str, EngineOptions], image: str, registry_host: str, tmp_path: Path
) -> None:
    kind, given = options
    mirror = ImageMirror(Refusing(FetchDirectly()))
    await pulled(ImageStand(kind, tmp_path, registry_host, replace(given, mirror=mirror), image=image))


async def test_what_the_site_refuses_is_one_sentence(
    options: tuple[str, EngineOptions], registry_host: str, tmp_path: Path
) -> None:
    kind, given = options
    mirror = ImageMirror(Refusing(NotFound(f"The registry {ELSEWHERE} has no shop/web:1.")))
    stand = ImageStand(kind, tmp_path, registry_host, replace(given, mirror=mirror), image=f"{ELSEWHERE}/shop/web:1")
    with pytest.raises(WorkFailed, match=r"has no shop/web:1"):
        await pulled(stand)


async def test_a_tampered_blob_is_refused_by_the_site_and_not_run(
    options: tuple[str, EngineOptions], image: str, registry_host: str, tmp_path: Path
) -> None:
    """The engine gets a response that ends early, and its failure says what the site found."""

    kind, given = options
    async with running_cache(tmp_path / "cache") as cache:
        cache.transfers.upstream = Tampering(cache.upstream)
        mirror = ImageMirror(Renamed(cache, registry_host))
        stand = ImageStand(
            kind, tmp_path, registry_host, replace(given, mirror=mirror),
            image=image.replace(registry_host, ELSEWHERE),
        )  # fmt: skip
        with pytest.raises(WorkFailed, match="do not match the digest"):
            await pulled(stand)


@dataclass(frozen=True)
class _Other:
    size_bytes: int

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b"\0" * self.size_bytes


@dataclass(frozen=True)
class Tampering:
    """An upstream whose blobs are others, of the same size."""

    upstream: Upstream

    async def manifest(self, repository: str, reference: str, *, known: Digest | None) -> ContentManifest | None:
        return await self.upstream.manifest(repository, reference, known=known)

    @asynccontextmanager
    async def blob(self, source: str, digest: Digest, *, offset: int) -> AsyncIterator[Incoming]:
        async with self.upstream.blob(source, digest, offset=offset) as arriving:
            yield _Other(arriving.size_bytes or 0)

    def file(self, source: str, *, offset: int, validator: str) -> AbstractAsyncContextManager[IncomingFile]:
        return self.upstream.file(source, offset=offset, validator=validator)
