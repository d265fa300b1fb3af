"""Removing a container whose mounts are in use for a moment after its end, as on a busy machine. A socket that
answers as Podman does holds it there."""

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.abc
import pytest

from homeport.adapters.network.http_client import UnixAddress
from homeport.adapters.runtime.docker_api import client
from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal
from tests.support.listening import outliving

pytestmark = pytest.mark.anyio

BUSY = "removing container 4f2c root filesystem: unlinkat /var/lib/containers/merged: device or resource busy"


class Removing:
    """Answers each request with the next of these, and with the last again."""

    def __init__(self, answers: Sequence[tuple[int, str]]) -> None:
        self._answers = [*answers]
        self.asked = 0

    async def serve(self, connection: anyio.abc.SocketStream) -> None:
        assert (await connection.receive()).startswith(b"DELETE ")
        self.asked += 1
        status, message = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        body = json.dumps({"message": message}).encode() if message else b""
        await connection.send(b"HTTP/1.1 %d It\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))


async def removed(folder: Path, answers: Sequence[tuple[int, str]]) -> int:
    """How often it was asked."""
    engine, address = Removing(answers), UnixAddress(folder / "socket")

    async def reach() -> UnixAddress:
        return address

    listener = await anyio.create_unix_listener(folder / "socket")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, outliving(engine.serve))
        await EngineApi(reach).remove_container("4f2c")
        tasks.cancel_scope.cancel()
    return engine.asked


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BUSY_PAUSE_SECONDS", 0.0)


async def test_mounts_in_use_for_a_moment_do_not_fail_the_removal(tmp_path: Path) -> None:
    assert await removed(tmp_path, [(500, BUSY), (500, BUSY), (204, "")]) == 3


async def test_what_the_first_attempt_removed_after_all_is_gone(tmp_path: Path) -> None:
    assert await removed(tmp_path, [(500, BUSY), (404, "no such container")]) == 2


async def test_mounts_that_stay_in_use_are_the_engines_refusal(tmp_path: Path) -> None:
    with pytest.RaisesGroup(EngineRefusal, flatten_subgroups=True):
        await removed(tmp_path, [(500, BUSY)])


async def test_a_container_that_was_never_there_is_said_so(tmp_path: Path) -> None:
    with pytest.RaisesGroup(EngineRefusal, flatten_subgroups=True):
        await removed(tmp_path, [(404, "no such container")])
