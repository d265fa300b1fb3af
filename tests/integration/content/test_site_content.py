"""A node reads content of its site over HTTP: whole, in parts, while it arrives, after a broken line."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.applications import Starlette

from homeport.adapters.registry.site_content import SiteContent
from homeport.content.cache.cache import Cache
from homeport.content.cache.routes import pull_routes
from homeport.errors import FetchDirectly, InvalidInput, NotFound, PeerUnavailable
from homeport.ports import ContentManifest, ContentSource
from homeport.serving.server.limits import Limits
from homeport.serving.server.run import Stopping, bind, http_server
from homeport.vocabulary import Digest
from tests.support.caches import running_cache
from tests.support.ports import free_port
from tests.support.relay import Relay
from tests.support.scripted_registry import Fault, ScriptedRegistry, digest_of, scripted_registry

pytestmark = pytest.mark.anyio

ELSEWHERE = "oci://registry.example:5000/team/app"
LAYER = bytes(range(256)) * 16 * 1024


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Site:
    content: SiteContent
    cache: Cache
    registry: ScriptedRegistry


@dataclass(frozen=True)
class Elsewhere:
    """The cache, of a registry on loopback under another name: a site gives nodes nothing of its own loopback."""

    cache: Cache
    repository: str

    def open(self, source: str, digest: Digest, *, user: str = "") -> object:
        return self.cache.open(source.replace(ELSEWHERE, self.repository), digest, user=user)

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        return await self.cache.manifest(repository.replace(ELSEWHERE, self.repository), reference, user=user)

    async def knows(self, repository: str) -> bool:
        return await self.cache.knows(repository.replace(ELSEWHERE, self.repository))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with scripted_registry() as registry, running_cache(tmp_path, size=8 * 2**20) as cache:
        routes = pull_routes(Elsewhere(cache, registry.repository))  # type: ignore[arg-type]
        listener = bind("127.0.0.1", 0)
        port = listener.getsockname()[1]
        app = Starlette(routes=routes.router.routes)
        async with http_server(app, [listener], Stopping(), limits=Limits()):
            yield Site(SiteContent("127.0.0.1", port=port), cache, registry)


async def read(content: ContentSource, digest: Digest, offset: int = 0, count: int | None = None) -> bytes:
    async with content.open(ELSEWHERE, digest) as opened:
        return b"".join([chunk async for chunk in opened.chunks(offset, count)])


async def test_content_is_read_whole_and_in_parts(site: Site) -> None:
    manifest = site.registry.push("1.0", LAYER)
    found = await site.content.manifest(ELSEWHERE, "1.0", user="component/a")
    assert found.digest == manifest
    for _ in range(2):
        assert await read(site.content, digest_of(LAYER)) == LAYER
        assert await read(site.content, digest_of(LAYER), 1000, 10) == LAYER[1000:1010]
    assert site.registry.sent[f"/v2/team/app/blobs/{digest_of(LAYER)}"] == len(LAYER)


async def test_a_broken_line_to_the_site_is_resumed(site: Site) -> None:
    site.registry.push("1.0", LAYER)
    relay = Relay(None, free_port(), ("127.0.0.1", site.content.port))
    relay.start()
    try:
        relay.cut_after_bytes, relay.cut_every_bytes = len(LAYER) // 3, len(LAYER) // 3
        assert await read(SiteContent("127.0.0.1", port=relay.port), digest_of(LAYER)) == LAYER
        assert relay.cuts >= 2
        assert relay.reserved <= 1.1 * len(LAYER)
    finally:
        relay.stop()


async def test_what_the_site_says_reaches_the_node(site: Site) -> None:
    site.registry.push("1.0", LAYER)
    with pytest.raises(NotFound, match="has no"):
        await site.content.manifest(ELSEWHERE, "2.0")
    site.registry.always = Fault(429, {"Retry-After": "200"})
    with pytest.raises(FetchDirectly, match="HTTP 429"):
        await site.content.manifest(ELSEWHERE, "1.0")
    site.registry.always = None
    await site.content.manifest(ELSEWHERE, "1.0")
    site.registry.always = Fault(429, {"Retry-After": "200"})
    with pytest.raises(PeerUnavailable, match="HTTP 429") as raised:
        await read(site.content, digest_of(LAYER))
    assert raised.value.retry_after_seconds == 200
    site.registry.always = Fault(403)
    with pytest.raises(FetchDirectly, match="podman login"):
        await read(site.content, digest_of(LAYER))
    site.registry.always = None
    large = bytes(9 * 2**20)
    site.registry.push("large", large)
    with pytest.raises(FetchDirectly, match="more than the cache"):
        await read(site.content, digest_of(large))
    with pytest.raises(InvalidInput):
        await read(site.content, Digest("sha256:x"))


async def test_a_site_without_content_or_without_an_answer_leaves_it_to_the_node(site: Site) -> None:
    for content in (SiteContent("127.0.0.1"), SiteContent("127.0.0.1", port=free_port())):
        with pytest.raises(FetchDirectly):
            await content.manifest(ELSEWHERE, "1.0")


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "localhost"])
async def test_a_node_gets_nothing_of_the_loopback_of_its_site(site: Site, host: str) -> None:
    with pytest.raises(FetchDirectly, match="the machine's own"):
        await site.content.manifest(f"oci://{host}/team/app", "1.0")
    assert not site.registry.requests


def test_content_is_for_machines_only() -> None:
    from homeport.content.cache.routes import ACTIONS
    from homeport.core.access.actions import Level

    assert {action.least for action in ACTIONS.values()} == {Level.MACHINE_ONLY}
