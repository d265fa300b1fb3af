"""Fetching models from real servers on loopback: resumed, verified, once; and what is refused."""

import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.web_files import ModelSourceOptions, _require_safe, _split
from homeport.core.inference.models.entries import INDEX_SCHEMA, ModelEntry
from homeport.errors import DigestMismatch, InvalidInput, NotFound, PeerUnavailable, Refused
from homeport.models.store import fetching
from homeport.models.store.fetching import ModelFetcher, digest_of_file, model_file
from homeport.models.store.index import ModelIndex
from tests.support.web_files import WebServer, web_server

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 4096
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def fetcher(folder: Path, **options: Any) -> ModelFetcher:
    return ModelFetcher(ModelIndex(folder), OciRegistry(), ModelSourceOptions(**options), now_ms=lambda: 1)


def nothing(done: int, total: int) -> None:
    pass


async def test_a_download_that_breaks_goes_on_where_it_stopped_and_is_verified(
    web: WebServer, tmp_path: Path
) -> None:
    web.files["/x.gguf"], web.breaks = CONTENT, [300_000, 300_000]
    told: list[tuple[int, int]] = []
    found = await fetcher(tmp_path).fetch(
        f"{web.url}/x.gguf", digest=DIGEST, on_bytes=lambda done, total: told.append((done, total))
    )
    assert found.path.read_bytes() == CONTENT
    assert [ranged for _, ranged, _ in web.asked] == ["", "bytes=300000-", "bytes=600000-"]
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert not list((tmp_path / "partial").iterdir())


async def test_what_arrived_before_a_restart_is_not_fetched_again(web: WebServer, tmp_path: Path) -> None:
    web.files["/x.gguf"], web.breaks = CONTENT, [500_000, 0, 0]
    with pytest.raises(PeerUnavailable):
        await fetcher(tmp_path).fetch(f"{web.url}/x.gguf", digest=DIGEST, on_bytes=nothing)
    web.breaks = []
    found = await fetcher(tmp_path).fetch(f"{web.url}/x.gguf", digest=DIGEST, on_bytes=nothing)
    assert found.digest == DIGEST
    assert web.asked[-1][1] == "bytes=500000-"


async def test_a_server_without_ranges_sends_everything_again(web: WebServer, tmp_path: Path) -> None:
    web.files["/x.gguf"], web.breaks, web.with_ranges = CONTENT, [500_000], False
    assert (await fetcher(tmp_path).fetch(f"{web.url}/x.gguf", digest="", on_bytes=nothing)).digest == DIGEST


async def test_a_wrong_digest_leaves_nothing_behind(web: WebServer, tmp_path: Path) -> None:
    web.files["/x.gguf"] = CONTENT
    with pytest.raises(DigestMismatch, match="does not match its digest"):
        await fetcher(tmp_path).fetch(f"{web.url}/x.gguf", digest="sha256:" + "0" * 64, on_bytes=nothing)
    assert not (tmp_path / "blobs").exists()
    assert ModelIndex(tmp_path).entries() == {}


async def test_two_that_want_one_model_share_one_download(web: WebServer, tmp_path: Path) -> None:
    web.files["/x.gguf"] = CONTENT
    shared = fetcher(tmp_path)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(lambda: shared.fetch(f"{web.url}/x.gguf", digest=DIGEST, on_bytes=nothing))
    assert len(web.asked) == 1
    await fetcher(tmp_path).fetch(f"{web.url}/x.gguf", digest="", on_bytes=nothing)
    assert len(web.asked) == 1, "known by its reference, also after a restart and without a network"
    lines = (tmp_path / "provenance.jsonl").read_text().splitlines()
    assert [json.loads(line)["size_bytes"] for line in lines] == [len(CONTENT)]


async def test_hugging_face_is_asked_with_the_token_and_its_storage_without(web: WebServer, tmp_path: Path) -> None:
    storage = "/storage/x"
    web.files[storage] = CONTENT
    web.redirects["/org/repo/resolve/main/x.gguf"] = f"{web.url.replace('127.0.0.1', 'localhost')}{storage}"
    listing = {"siblings": [{"rfilename": "README.md"}, {"rfilename": "x.gguf"}]}
    web.files["/api/models/org/repo"] = json.dumps(listing).encode()
    found = await fetcher(tmp_path, hf_endpoint=web.url, hf_token="secret").fetch(
        "hf:org/repo", digest=DIGEST, on_bytes=nothing
    )
    assert found.path.name == "x.gguf"
    assert [(path, login) for path, _, login in web.asked] == [
        ("/api/models/org/repo", "Bearer secret"),
        ("/org/repo/resolve/main/x.gguf", "Bearer secret"),
        (storage, ""),
    ]


async def test_a_repository_with_several_models_is_a_question(web: WebServer, tmp_path: Path) -> None:
    listing = {"siblings": [{"rfilename": "a.gguf"}, {"rfilename": "b.gguf"}]}
    web.files["/api/models/org/repo"] = json.dumps(listing).encode()
    with pytest.raises(InvalidInput, match=r"2 models: a\.gguf, b\.gguf"):
        await fetcher(tmp_path, hf_endpoint=web.url).fetch("hf:org/repo", digest="", on_bytes=nothing)


async def test_s3_is_read_by_its_endpoint_and_refused_without_one(web: WebServer, tmp_path: Path) -> None:
    web.files["/bucket/a/x.gguf"] = CONTENT
    found = await fetcher(tmp_path, s3_endpoint=web.url).fetch(
        "s3://bucket/a/x.gguf", digest=DIGEST, on_bytes=nothing
    )
    assert found.size_bytes == len(CONTENT)
    with pytest.raises(InvalidInput, match="no S3 endpoint"):
        await fetcher(tmp_path / "other").fetch("s3://bucket/a/x.gguf", digest="", on_bytes=nothing)


async def test_what_is_not_there_and_what_may_not_be_fetched_are_sentences(web: WebServer, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"has no /nope\.gguf"):
        await fetcher(tmp_path).fetch(f"{web.url}/nope.gguf", digest="", on_bytes=nothing)
    with pytest.raises(Refused, match="may not fetch models"):
        await fetcher(tmp_path, allow_downloads=False).fetch(f"{web.url}/x.gguf", digest="", on_bytes=nothing)
    with pytest.raises(NotFound, match="There is no file"):
        await fetcher(tmp_path).fetch("/no/such/model.gguf", digest="", on_bytes=nothing)


async def test_a_file_of_this_machine_is_used_where_it_lies(tmp_path: Path) -> None:
    model = tmp_path / "folder" / "x.gguf"
    model.parent.mkdir()
    model.write_bytes(CONTENT)
    found = await fetcher(tmp_path / "store").fetch(f"file:{model.parent}", digest=DIGEST, on_bytes=nothing)
    assert (found.path, found.digest) == (model, DIGEST)
    assert digest_of_file(model) == DIGEST


def test_a_folder_means_its_one_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no \.gguf"):
        model_file(tmp_path)
    for name in ("big-00001-of-00002.gguf", "big-00002-of-00002.gguf"):
        (tmp_path / name).touch()
    assert model_file(tmp_path).name == "big-00001-of-00002.gguf"
    (tmp_path / "other.gguf").touch()
    with pytest.raises(InvalidInput, match="2 models"):
        model_file(tmp_path)


def test_a_damaged_index_is_set_aside_and_a_newer_one_refused(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"schema": 1, "models": [')
    assert ModelIndex(tmp_path).entries() == {}
    assert (tmp_path / "index.damaged").exists()
    (tmp_path / "index.json").write_text('{"schema": 2, "models": []}')
    with pytest.raises(InvalidInput, match="schema 2"):
        ModelIndex(tmp_path).entries()


@pytest.mark.parametrize(("synced", "known"), [(1, ["a"]), (2, ["a", "b"])])
def test_an_index_survives_a_kill_while_it_is_written(tmp_path: Path, synced: int, known: list[str]) -> None:
    """Before its draft is durable, and when that has taken its place."""
    index = ModelIndex(tmp_path)
    index.put(ModelEntry(id="a", source="hf:a/b"))
    child = os.fork()
    if child == 0:
        calls = 0

        def die(_: int) -> None:
            nonlocal calls
            calls += 1
            if calls == synced:
                os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = die  # type: ignore[assignment]
        index.put(ModelEntry(id="b", source="hf:c/d"))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert sorted(ModelIndex(tmp_path).entries()) == known
    ModelIndex(tmp_path).put(ModelEntry(id="c", source="hf:e/f"))
    assert sorted(ModelIndex(tmp_path).entries()) == [*known, "c"], "what was left behind is in nobody's way"


@pytest.mark.parametrize(
    "location", ["https://[bad", "https://h:99999/x", "http://169.254.169.254/x", "//[", "ftp://h/x"]
)
async def test_a_redirect_to_what_is_no_address_or_has_no_tls_is_refused(
    web: WebServer, tmp_path: Path, location: str
) -> None:
    web.redirects["/x.gguf"] = location
    with pytest.raises(Refused):
        await fetcher(tmp_path).fetch(f"{web.url}/x.gguf", digest="", on_bytes=nothing)


@pytest.mark.parametrize(
    "to", ["http://127.0.0.1:8080/x", "https://127.0.0.1/x", "https://10.0.0.1/x", "https://nas/x"]
)
def test_a_server_on_the_internet_cannot_lead_to_what_only_this_network_reaches(to: str) -> None:
    with pytest.raises(Refused):
        _require_safe(_split(to), _split("https://models.example.org/x"))
    _require_safe(_split("https://cdn.example.org/x"), _split("https://models.example.org/x"))
    _require_safe(_split("https://nas/x"), _split("https://nas.local/x"))


@pytest.mark.parametrize("name", ["x" * 300, "é" * 150, "..", ".", ".validator", "", "x\\..\\y", "x?y=/../z"])
async def test_whatever_an_address_ends_in_is_kept_as_a_file_in_its_place(
    web: WebServer, tmp_path: Path, name: str
) -> None:
    web.files[f"/a/{quote(name, safe='?=/')}"] = CONTENT
    found = await fetcher(tmp_path).fetch(f"{web.url}/a/{quote(name, safe='?=/.')}", digest=DIGEST, on_bytes=nothing)
    assert found.path.read_bytes() == CONTENT
    assert found.path.parent.parent == tmp_path / "blobs"


@pytest.mark.parametrize("reference", ["https://[bad/x", "https://host:99999/x", "https://[::1/x"])
async def test_an_address_that_is_none_is_refused(tmp_path: Path, reference: str) -> None:
    with pytest.raises(Refused, match="not an address"):
        await fetcher(tmp_path).fetch(reference, digest="", on_bytes=nothing)


@pytest.mark.parametrize(
    "content",
    [b"[]", b"null", b"7", b'{"schema": 1}', b'{"models": {}}', b'{"models": "x"}', b"[" * 100_000, b"\xff"],
)
def test_an_index_that_is_none_is_set_aside(tmp_path: Path, content: bytes) -> None:
    """Central and nodes read it at each start."""
    (tmp_path / "index.json").write_bytes(content)
    assert ModelIndex(tmp_path).entries() == {}
    assert (tmp_path / "index.damaged").exists()


def test_an_entry_with_an_infinite_number_harms_itself_alone(tmp_path: Path) -> None:
    entries = ", ".join(['{"id": "a", "size_bytes": 1e999}', '{"id": "b", "source": "hf:a/b"}', "[]", "1", "null"])
    (tmp_path / "index.json").write_text(f'{{"schema": {INDEX_SCHEMA}, "models": [{entries}]}}')
    assert list(ModelIndex(tmp_path).entries()) == ["b"]


def kept_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def test_a_file_without_a_size_ends_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for _ in range(200):
                    self.wfile.write(bytes(2**20))

        def log_message(self, *_: Any) -> None:
            """Silent."""

    monkeypatch.setattr(fetching, "SPACE_KEPT_BYTES", shutil.disk_usage(tmp_path).free - 24 * 2**20)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(InvalidInput, match="the disk has"):
            await fetcher(tmp_path).fetch(
                f"http://127.0.0.1:{server.server_address[1]}/x.gguf", digest="", on_bytes=nothing
            )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert kept_bytes(tmp_path) < 2**20
