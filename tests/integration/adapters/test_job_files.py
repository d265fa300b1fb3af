"""Files of a job whose container Podman is still cleaning up behind: its state is `stopped` until its file system is
unmounted, and in between its files seem not to be there. A socket that answers as Podman does holds it there."""

import io
import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.abc
import pytest

from homeport.adapters.jobs.containers import ContainerJobs
from homeport.adapters.network.http_client import UnixAddress
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.podman import api as podman
from homeport.adapters.runtime.podman.api import PodmanApi
from homeport.errors import WorkFailed
from homeport.vocabulary import NodeId
from tests.support.listening import outliving

pytestmark = pytest.mark.anyio


class CleaningUp:
    """Says so many times that it is not done; then it is, with these files. Until then a file is not there, or what
    comes of its archive is only this much."""

    def __init__(self, rounds: float, files: dict[str, bytes], part_bytes: int | None = None) -> None:
        self._rounds = rounds
        self._files = files
        self._part_bytes = part_bytes
        self.asked: list[str] = []

    async def serve(self, connection: anyio.abc.SocketStream) -> None:
        path = (await connection.receive()).split(b" ", 2)[1].decode()
        self.asked.append("archive" if "/archive" in path else "state")
        status, body = self._archive(path) if "/archive" in path else (200, self._state())
        await connection.send(b"HTTP/1.1 %d It\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    def _state(self) -> bytes:
        is_done, self._rounds = self._rounds <= 0, self._rounds - 1
        return json.dumps({"State": {"Status": "exited" if is_done else "stopped"}}).encode()

    def _archive(self, path: str) -> tuple[int, bytes]:
        name = path.partition("path=")[2].replace("%2F", "/").lstrip("/")
        is_cut = self._rounds >= 0 and self._part_bytes is not None
        if (self._rounds >= 0 and not is_cut) or name not in self._files:
            return 404, json.dumps({"message": f"stat {name}: no such file or directory"}).encode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(self._files[name])
            archive.addfile(member, io.BytesIO(self._files[name]))
        return 200, packed.getvalue()[: self._part_bytes if is_cut else None]


@asynccontextmanager
async def engine(path: Path, cleaning: CleaningUp) -> AsyncIterator[ContainerJobs]:
    async def reach() -> Any:
        return UnixAddress(path)

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, outliving(cleaning.serve))
        yield ContainerJobs(cast("ContainerEngine", None), PodmanApi(reach), NodeId("n1"))
        tasks.cancel_scope.cancel()


async def test_a_file_is_kept_although_podman_is_still_cleaning_up(tmp_path: Path) -> None:
    cleaning = CleaningUp(3, {"tmp/a.txt": b"abc"})
    async with engine(tmp_path / "socket", cleaning) as jobs:
        assert await jobs.collect("r.1", "/tmp/a.txt", bytes_max=3) == b"abc"
    assert cleaning.asked == ["archive", "state", "state", "state", "state", "archive"]


@pytest.mark.parametrize("part_bytes", [0, 100, 512, 514, 1024])
async def test_a_file_that_breaks_off_while_podman_cleans_up_is_read_again(tmp_path: Path, part_bytes: int) -> None:
    cleaning = CleaningUp(2, {"tmp/a.txt": b"abc"}, part_bytes)
    async with engine(tmp_path / "socket", cleaning) as jobs:
        assert await jobs.collect("r.1", "/tmp/a.txt", bytes_max=3) == b"abc"
    assert cleaning.asked == ["archive", "state", "state", "state", "archive"]


async def test_a_file_that_stays_cut_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman, "CLEAN_UP_SECONDS_MAX", 0.3)
    cleaning = CleaningUp(float("inf"), {"tmp/a.txt": b"abc"}, 0)
    async with engine(tmp_path / "socket", cleaning) as jobs:
        with pytest.raises(WorkFailed, match=r"/tmp/a\.txt was not kept: the engine sent only a part of it\.$"):
            await jobs.collect("r.1", "/tmp/a.txt", bytes_max=3)


async def test_a_file_that_is_not_there_is_looked_for_once_more_and_no_longer(tmp_path: Path) -> None:
    cleaning = CleaningUp(0, {})
    async with engine(tmp_path / "socket", cleaning) as jobs:
        with pytest.raises(WorkFailed, match=r"/tmp/a\.txt was not kept: it is not there"):
            await jobs.collect("r.1", "/tmp/a.txt", bytes_max=3)
    assert cleaning.asked == ["archive", "state", "archive"]


async def test_a_clean_up_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman, "CLEAN_UP_SECONDS_MAX", 0.3)
    cleaning = CleaningUp(float("inf"), {"tmp/a.txt": b"abc"})
    async with engine(tmp_path / "socket", cleaning) as jobs:
        with pytest.raises(WorkFailed, match="it is not there"), anyio.fail_after(30):
            await jobs.collect("r.1", "/tmp/a.txt", bytes_max=3)
    assert cleaning.asked[-1] == "archive"
