"""Models of the web reach the nodes of a site through its cache: over the uplink once, however many want one."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.site_content import SiteContent
from homeport.adapters.registry.web_files import ModelSourceOptions
from homeport.content.cache.cache import Cache
from homeport.content.cache.routes import pull_routes
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import DigestMismatch, NotFound, PeerUnavailable
from homeport.models.store.fetching import ModelFetcher
from homeport.models.store.index import ModelIndex
from homeport.serving.server.limits import Limits
from homeport.serving.server.run import Stopping, bind, http_server
from tests.support.caches import running_cache
from tests.support.web_files import WebServer, web_server

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 16 * 1024
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
FILE = "/org/repo/resolve/main/x.gguf"
MODEL = "hf:org/repo/x.gguf"
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a site waits before it resumes a download is judged where that is decided."""
    monkeypatch.setattr("homeport.content.cache.decisions.RETRY", BackoffPolicy(0.01, 15.0))


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        server.files[FILE] = CONTENT
        yield server


@dataclass
class Site:
    cache: Cache
    port: int

    def node(self, folder: Path, *, hf_endpoint: str = NOWHERE) -> ModelFetcher:
        """Alone it reaches nothing, and it has no token."""
        options, content = ModelSourceOptions(hf_endpoint=hf_endpoint), SiteContent("127.0.0.1", port=self.port)
        return ModelFetcher(ModelIndex(folder), OciRegistry(), options, now_ms=lambda: 1, content=content)


@asynccontextmanager
async def running_site(folder: Path, web: WebServer) -> AsyncIterator[Site]:
    options = ModelSourceOptions(
        hf_endpoint=web.url, hf_token="secret", s3_endpoint=web.url, s3_access_key="key", s3_secret_key="hidden"
    )
    async with running_cache(folder, web=options) as cache:
        listener = bind("127.0.0.1", 0)
        app = Starlette(routes=pull_routes(cache).router.routes)
        async with http_server(app, [listener], Stopping(), limits=Limits()):
            yield Site(cache, listener.getsockname()[1])


def nothing(done: int, total: int) -> None:
    pass


@pytest.mark.parametrize("digest", ["", DIGEST], ids=["unknown digest", "known digest"])
async def test_two_nodes_at_once_cost_the_uplink_one_model(web: WebServer, tmp_path: Path, digest: str) -> None:
    told: list[tuple[int, int]] = []
    async with running_site(tmp_path / "site", web) as site:

        async def fetch(name: str) -> None:
            node = site.node(tmp_path / name)
            await node.fetch(MODEL, digest=digest, user="component/a", on_bytes=lambda *each: told.append(each))

        async with anyio.create_task_group() as tasks:
            for name in ("n1", "n2"):
                tasks.start_soon(fetch, name)
        assert web.sent_bytes == len(CONTENT)
        assert {login for _, _, login in web.asked} == {"Bearer secret"}, "the site's token; nodes have none"
        assert told[-1] == (len(CONTENT), len(CONTENT))
        for name in ("n1", "n2"):
            (entry,) = ModelIndex(tmp_path / name).entries().values()
            assert (entry.digest, entry.size_bytes) == (DIGEST, len(CONTENT))
            assert (tmp_path / name / entry.local_path).read_bytes() == CONTENT
            assert entry.local_path.endswith("/x.gguf")

        web.files.clear()  # the uplink is gone
        late = await site.node(tmp_path / "n3").fetch(MODEL, digest=digest, on_bytes=nothing)
        assert late.path.read_bytes() == CONTENT
        assert web.sent_bytes == len(CONTENT)


async def test_a_cut_and_a_restart_of_the_site_fetch_only_what_is_missing(web: WebServer, tmp_path: Path) -> None:
    web.breaks = [1_500_000, 0, 0, 0, 0, 0, 0, 0]
    async with running_site(tmp_path / "site", web) as site:
        with pytest.raises(PeerUnavailable):
            await site.node(tmp_path / "n1").fetch(MODEL, digest="", on_bytes=nothing)
    web.breaks = [1_000_000]
    async with running_site(tmp_path / "site", web) as site:
        found = await site.node(tmp_path / "n1").fetch(MODEL, digest="", on_bytes=nothing)
    assert found.digest == DIGEST
    assert web.sent_bytes == len(CONTENT), "each byte came once"
    assert web.asked[-1][1] == "bytes=2500000-"


@pytest.mark.parametrize("with_etag", [True, False], ids=["by its etag", "without an etag"])
async def test_a_file_that_changed_during_a_pause_is_fetched_from_its_beginning(
    web: WebServer, tmp_path: Path, with_etag: bool
) -> None:
    web.with_etag, web.breaks = with_etag, [1_500_000, *([0] * 8)]
    async with running_site(tmp_path / "site", web) as site:
        with pytest.raises(PeerUnavailable):
            await site.node(tmp_path / "n1").fetch(MODEL, digest="", on_bytes=nothing)
        web.breaks, web.files[FILE] = [], CONTENT[::-1]
        found = await site.node(tmp_path / "n1").fetch(MODEL, digest="", on_bytes=nothing)
        assert found.path.read_bytes() == CONTENT[::-1]


async def test_what_does_not_match_its_digest_reaches_no_node(web: WebServer, tmp_path: Path) -> None:
    wrong = "sha256:" + "0" * 64
    async with running_site(tmp_path / "site", web) as site:
        with pytest.raises((DigestMismatch, PeerUnavailable)):
            await site.node(tmp_path / "n1").fetch(MODEL, digest=wrong, on_bytes=nothing)
        web.redirects[FILE], web.linked = f"{web.url}/storage", "0" * 64
        web.files["/storage"] = CONTENT
        with pytest.raises(Exception, match="do not match the digest"):
            await site.node(tmp_path / "n1").fetch(MODEL, digest="", on_bytes=nothing)
        assert ModelIndex(tmp_path / "n1").entries() == {}
        assert not await site.cache.blobs.blobs()


async def test_what_its_server_does_not_have_is_not_tried_again_by_the_node(web: WebServer, tmp_path: Path) -> None:
    async with running_site(tmp_path / "site", web) as site:
        with pytest.raises(NotFound, match=r"no /org/repo/resolve/main/y\.gguf"):
            await site.node(tmp_path / "n1", hf_endpoint=web.url).fetch(
                "hf:org/repo/y.gguf", digest="", on_bytes=nothing
            )
        assert len(web.asked) == 1


async def test_a_node_fetches_by_itself_what_its_site_was_never_able_to_reach(web: WebServer, tmp_path: Path) -> None:
    lost = WebServer(url=NOWHERE)
    async with running_site(tmp_path / "site", lost) as site:
        node = site.node(tmp_path / "n1", hf_endpoint=web.url)
        with anyio.fail_after(60):
            assert (await node.fetch(MODEL, digest=DIGEST, on_bytes=nothing)).digest == DIGEST
    assert web.sent_bytes == len(CONTENT)


async def test_a_private_bucket_is_read_with_the_keys_of_the_site(web: WebServer, tmp_path: Path) -> None:
    web.files["/bucket/a/x.gguf"] = CONTENT
    async with running_site(tmp_path / "site", web) as site:
        found = await site.node(tmp_path / "n1").fetch("s3://bucket/a/x.gguf", digest="", on_bytes=nothing)
    assert found.digest == DIGEST
    assert "Credential=key/" in web.asked[0][2]
    assert "hidden" not in web.asked[0][2]
