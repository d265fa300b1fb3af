"""The watcher of handoff files: what it announces, and what it survives."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from homeport.core.inference.engines.handoff import Handoff
from homeport.models.node.handoffs import HandoffFiles, watch_handoffs

pytestmark = pytest.mark.anyio

GOOD = {"engine": "llamacpp", "url": "http://127.0.0.1:8100", "model": {"id": "m"}, "pool_id": "p", "replica_id": "r"}
BAD: dict[str, Any] = {
    "torn.json": '{"engine": "llama',
    "list.json": "[]",
    "no-url.json": json.dumps({"engine": "llamacpp", "model": {"id": "m"}}),
    "deep.json": "[" * 100_000,
    "bytes.json": "\ufffd\x00",
    "number.json": "1e999",
}


class Announced:
    def __init__(self) -> None:
        self.lists: list[dict[tuple[str, str], Handoff]] = []
        self._changed = anyio.Event()

    def take(self, found: Mapping[tuple[str, str], Handoff]) -> None:
        self.lists.append(dict(found))
        self._changed.set()

    async def until(self, count: int) -> dict[tuple[str, str], Handoff]:
        """The list after so many announcements."""
        with anyio.fail_after(30):
            while len(self.lists) < count:
                await self._changed.wait()
                self._changed = anyio.Event()
        return self.lists[-1]


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[Announced]:
    announced = Announced()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            files = HandoffFiles(folder, "node-1")
            await watch_handoffs(files, announced.take, in_thread=run_sync, poll_seconds=0.02)

        tasks.start_soon(run)
        yield announced
        tasks.cancel_scope.cancel()


def put(folder: Path, name: str, text: str) -> None:
    draft = folder / f".{name}.new"
    draft.write_text(text)
    draft.replace(folder / name)


async def test_files_are_bound_changed_and_withdrawn(tmp_path: Path) -> None:
    async with watching(tmp_path) as announced:
        assert await announced.until(1) == {}
        put(tmp_path, "a.json", json.dumps(GOOD))
        (handoff,) = (await announced.until(2)).values()
        assert (handoff.key, handoff.node_id) == (("p", "r"), "node-1")
        put(tmp_path, "a.json", json.dumps({**GOOD, "url": "http://127.0.0.1:8101"}))
        assert (await announced.until(3))["p", "r"].url == "http://127.0.0.1:8101"
        (tmp_path / "a.json").unlink()
        assert await announced.until(4) == {}


async def test_bad_files_harm_nobody_and_a_file_that_turned_bad_keeps_what_it_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    for name, text in BAD.items():
        put(tmp_path, name, text)
    put(tmp_path, "good.json", json.dumps(GOOD))
    async with watching(tmp_path) as announced:
        assert list(await announced.until(1)) == [("p", "r")]
        put(tmp_path, "good.json", BAD["torn.json"])
        put(tmp_path, "second.json", json.dumps({**GOOD, "replica_id": "s"}))
        assert sorted(await announced.until(2)) == [("p", "r"), ("p", "s")]


async def test_a_folder_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    async with watching(tmp_path / "engines") as announced:
        assert await announced.until(1) == {}
        (tmp_path / "engines").mkdir(exist_ok=True)
        put(tmp_path / "engines", "a.json", json.dumps(GOOD))
        assert list(await announced.until(2)) == [("p", "r")]
