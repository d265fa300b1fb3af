"""Engines that are fetched as a release or built from source, for real: until they answer, and handed over."""

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.network.http_client import TcpAddress, ask
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.web_files import ModelSourceOptions
from homeport.adapters.runtime.programs import child_process
from homeport.core.inference.engines.provisioning import launch_of
from homeport.core.inference.engines.spec import EngineSpec, read_engine
from homeport.core.reconcile.recovery import NOT_RETRYABLE
from homeport.errors import WorkFailed
from homeport.models.node import llamacpp_server
from homeport.models.node.provisioner import PreparedEngine, Provisioner
from homeport.models.store.fetching import ModelFetcher
from homeport.models.store.index import ModelIndex
from tests.support.git import git
from tests.support.ports import free_port
from tests.support.tiny_model import write_tiny_model
from tests.support.waiting import eventually
from tests.support.web_files import WebServer, web_server

pytestmark = pytest.mark.anyio

LAUNCHER = f'#!/bin/sh\nexec {sys.executable} {llamacpp_server.__file__} "$@"\n'
"""The real llama.cpp under the name of its own server."""
BUILD = "mkdir -p build/bin && cp source/launcher build/bin/llama-server && chmod +x build/bin/llama-server\n"


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def packed(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def zipped(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def committed(repository: Path) -> str:
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "x")):
        git(*words, cwd=repository)
    return git("rev-parse", "HEAD", cwd=repository)


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def engine(model: Path, **section: Any) -> EngineSpec:
    return read_engine({"engine": "llamacpp", "model": str(model), "device": "cpu", "context": 256, **section}, {})


class Node:
    def __init__(self, data: Path) -> None:
        self.said: list[str] = []
        registry, options = OciRegistry(), ModelSourceOptions()
        fetcher = ModelFetcher(ModelIndex(data / "models"), registry, options, now_ms=lambda: 1)
        self._provisioner = Provisioner(data, fetcher, {**os.environ, "HF_TOKEN": "secret"}, "podman")

    async def prepare(self, spec: EngineSpec) -> PreparedEngine:
        return await self._provisioner.prepare("c", spec, lambda step, text, *_: self.said.append(text), plan="p")


@asynccontextmanager
async def answering(prepared: PreparedEngine) -> AsyncIterator[int]:
    """Its process, until it is healthy. The runtime of engines does the same with more care."""
    port = free_port()
    assert prepared.model is not None
    launch = launch_of(prepared.spec, model_path=str(prepared.model.path), port=port, server=prepared.server)
    command = [*launch.command, *launch.args]
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await child_process.run(command, environment=dict(os.environ), seconds=120)

        async def healthy() -> bool:
            try:
                return (await ask(TcpAddress("127.0.0.1", port), "GET", "/health", seconds=2)).status == 200
            except OSError:
                return False

        tasks.start_soon(run)
        await eventually(healthy, what="the engine to be healthy")
        yield port
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("path", ["/absent.gguf", "/private.gguf"])
async def test_a_model_that_is_absent_or_private_fails_at_once(web: WebServer, tmp_path: Path, path: str) -> None:
    """Four attempts in half a minute would say the same."""
    web.forbidden.add("/private.gguf")
    spec = read_engine({"engine": "llamacpp", "model": f"{web.url}{path}", "device": "cpu"}, {})
    with pytest.raises(WorkFailed) as failed:
        await Node(tmp_path / "data").prepare(spec)
    assert failed.value.code in NOT_RETRYABLE


@pytest.mark.parametrize("pack", [packed, zipped], ids=["tar.gz", "zip"])
async def test_a_release_archive_is_fetched_by_its_digest_unpacked_once_and_runs(
    web: WebServer, tmp_path: Path, pack: Any
) -> None:
    content = pack({"llama-b1/bin/llama-server": LAUNCHER, "llama-b1/LICENSE": "MIT"})
    web.files["/llama.archive"] = content
    node, model = Node(tmp_path / "data"), write_tiny_model(tmp_path / "tiny.gguf")
    spec = engine(model, mode="binary", binary=f"{web.url}/llama.archive", checksum=digest_of(content))
    prepared = await node.prepare(spec)
    assert prepared.engine_version == f"llamacpp-binary:{digest_of(content)[7:19]}-cpu"
    async with answering(prepared):
        pass
    plan = json.loads((tmp_path / "data/plans/p.json").read_text())
    assert [step["kind"] for step in plan["steps"]][-1] == "run"
    again = await node.prepare(spec)
    assert json.loads((tmp_path / "data/plans/p.json").read_text()) == plan
    assert again.server == prepared.server
    assert len(web.asked) == 1, "known by its digest"
    with pytest.raises(WorkFailed, match="does not match its digest"):
        await Node(tmp_path / "other").prepare(replace(spec, checksum="sha256:" + "0" * 64))


def with_links(links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return buffer.getvalue()


async def test_an_archive_without_the_program_or_that_leads_out_of_itself_is_refused(
    web: WebServer, tmp_path: Path
) -> None:
    node, model = Node(tmp_path / "data"), write_tiny_model(tmp_path / "tiny.gguf")
    for name, content, words in (
        ("/a", packed({"README": "x"}), "has no program llama-server"),
        ("/b", packed({"../../llama-server": LAUNCHER}), "cannot be unpacked"),
        ("/c", zipped({"../llama-server": LAUNCHER}), "cannot be unpacked"),
        ("/d", with_links({"d/e/up": "../..", "out": "d/e/up/../x"}), "out leads out of the archive"),
    ):
        web.files[name] = content
        with pytest.raises(WorkFailed, match=words):
            await node.prepare(engine(model, mode="binary", binary=web.url + name, checksum=digest_of(content)))
    assert not any("llama-server" in names for _, _, names in os.walk(tmp_path))


async def test_a_model_that_does_not_exist_is_not_looked_for_again_and_again(tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match="There is no file") as failed:
        await Node(tmp_path / "data").prepare(engine(tmp_path / "none.gguf"))
    assert failed.value.code in NOT_RETRYABLE


async def test_an_engine_is_built_from_git_by_its_command_and_runs(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "launcher").write_text(LAUNCHER)
    (repository / "build.sh").write_text(f'test -z "$HF_TOKEN" && {BUILD}')
    commit = committed(repository)
    model = write_tiny_model(tmp_path / "tiny.gguf")
    source = {"mode": "source", "repository": f"file://{repository}", "build": "sh source/build.sh"}
    node = Node(tmp_path / "data")
    prepared = await node.prepare(engine(model, revision="main", **source))
    async with answering(prepared):
        pass
    node.said.clear()
    assert (await node.prepare(engine(model, revision="main", **source))).server == prepared.server
    assert not any("build" in text for text in node.said), "a finished build is used again"
    pinned = await node.prepare(engine(model, revision=commit, **source))
    assert pinned.engine_version == f"llamacpp-source:{commit}-cpu"
    with pytest.raises(WorkFailed, match="failed with exit code"):
        await node.prepare(engine(model, revision="none", **source))
    with pytest.raises(WorkFailed, match="no-such-tool is missing, and building needs it"):
        await node.prepare(engine(model, **{**source, "build": "no-such-tool x"}))


@pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("cmake", "make", "g++")), reason="building with CMake needs its tools"
)
async def test_an_engine_is_built_with_cmake_from_an_archive_of_source_code(web: WebServer, tmp_path: Path) -> None:
    lists = (
        "cmake_minimum_required(VERSION 3.10)\nproject(llama NONE)\n"
        "file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bin)\n"
        "add_custom_target(llama-server COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/launcher "
        "${CMAKE_BINARY_DIR}/bin/llama-server)\n"
    )
    content = packed({"llama-1.0/CMakeLists.txt": lists, "llama-1.0/launcher": LAUNCHER})
    web.files["/llama-1.0.tar.gz"] = content
    model = write_tiny_model(tmp_path / "tiny.gguf")
    spec = engine(model, mode="source", repository=f"{web.url}/llama-1.0.tar.gz", checksum=digest_of(content))
    prepared = await Node(tmp_path / "data").prepare(spec)
    async with answering(prepared):
        pass
