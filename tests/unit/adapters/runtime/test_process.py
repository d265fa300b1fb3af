"""Native programs that outlive the node."""

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.runtime.custom_spec import read_spec
from homeport.adapters.runtime.process import runtime as process
from homeport.adapters.runtime.process.runtime import ProcessRuntime
from homeport.core.model.custom import CustomKind, HttpProbe, TcpProbe
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import WorkFailed
from homeport.ports import Container, Workload
from homeport.vocabulary import Code, DeploymentId, ProfileType
from tests.support.health import settle
from tests.support.listening import outliving
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ID = DeploymentId("d-1")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime(tmp_path / "data", dict(os.environ))
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.remove(ID, "web", remove_images=False)


def spec(extension: Mapping[str, Any], **environment: str) -> ComponentSpec:
    extensions = {"x-homeport-extensions": {"process": extension}}
    return ComponentSpec("web", ProfileType.CUSTOM, "", "", environment, extensions=extensions)


def shell(folder: Path, script: str, **more: Any) -> Workload:
    return Workload(ID, spec({"command": ["sh", "-c", script], **more}), folder / "web")


def ignore(step: str, message: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


async def container(runtime: ProcessRuntime) -> Container:
    ((observation),) = await runtime.observe(ID)
    return observation.containers[0]


def lives(pid: int) -> bool:
    """A zombie waits only for init to look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def ended(runtime: ProcessRuntime) -> Container:
    for _ in range(200):
        found = await container(runtime)
        if not found.running and found.exit_code is not None:
            return found
        await anyio.sleep(0.02)
    pytest.fail("it still runs")


async def test_the_exit_code_is_known_also_to_the_next_node(runtime: ProcessRuntime, tmp_path: Path) -> None:
    await runtime.apply(shell(tmp_path, "sleep 0.1; exit 7"), ignore)
    again = ProcessRuntime(tmp_path / "data", dict(os.environ))
    assert (await ended(again)).exit_code == 7


async def test_a_program_that_ignores_the_term_signal_is_killed(
    runtime: ProcessRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STOP_SECONDS", 0.3)
    await runtime.apply(shell(tmp_path, "trap '' TERM; while true; do sleep 0.05; done"), ignore)
    pid = int((await container(runtime)).id.partition("-")[0])
    await runtime.remove(ID, "web", remove_images=False)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_what_a_program_leaves_in_its_group_ends_with_it(runtime: ProcessRuntime, tmp_path: Path) -> None:
    await runtime.apply(shell(tmp_path, "sleep 600 & echo $!; exit 0"), ignore)
    await ended(runtime)
    lines = [line async for line in runtime.logs(shell(tmp_path, ""), tail=10)]
    for _ in range(100):
        if not lives(int(lines[0])):
            return
        await anyio.sleep(0.02)
    pytest.fail("it was left running")


async def test_a_recycled_pid_is_not_mistaken_for_the_program(runtime: ProcessRuntime, tmp_path: Path) -> None:
    await runtime.apply(shell(tmp_path, "exit 0"), ignore)
    await ended(runtime)
    path = tmp_path / "data" / "process" / ID / "web" / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "pid": os.getpid()}))
    assert not (await container(runtime)).running
    await runtime.remove(ID, "web", remove_images=False)


async def test_a_killed_program_is_started_again_under_a_new_id(runtime: ProcessRuntime, tmp_path: Path) -> None:
    workload = shell(tmp_path, "exec sleep 600")
    await runtime.apply(workload, ignore)
    before = await container(runtime)
    os.kill(int(before.id.partition("-")[0]), signal.SIGKILL)
    assert (await ended(runtime)).exit_code == 128 + signal.SIGKILL, "as of a container"
    await runtime.apply(workload, ignore)
    after = await container(runtime)
    assert after.running
    assert after.id != before.id


async def test_the_log_is_bounded(runtime: ProcessRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_BYTES_MAX", 10_000)
    workload = shell(tmp_path, "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; echo last")
    await runtime.apply(workload, ignore)
    await ended(runtime)
    kept = sum(path.stat().st_size for path in (tmp_path / "data" / "process" / ID / "web").glob("output.log*"))
    assert kept <= 2 * (10_000 + 65_536)
    lines = [line async for line in runtime.logs(workload, tail=1)]
    assert lines == [b"last\n"]


async def test_a_tcp_check_waits_for_the_port(runtime: ProcessRuntime, tmp_path: Path) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    workload = shell(tmp_path, "exec sleep 600", health={"tcp": f"127.0.0.1:{port}"})
    async with listener:
        await runtime.apply(workload, ignore)
        assert (await settle(runtime, workload)).healthy is True


async def test_an_http_check_says_what_was_answered(runtime: ProcessRuntime, tmp_path: Path) -> None:
    async def refuse(connection: anyio.abc.SocketStream) -> None:
        await connection.receive()
        await connection.send(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    health = {"http": f"http://127.0.0.1:{port}/healthz", "interval_seconds": 0, "retries": 1}
    workload = shell(tmp_path, "exec sleep 600", health=health)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, outliving(refuse))
        await runtime.apply(workload, ignore)
        verdict = await settle(runtime, workload)
        group.cancel_scope.cancel()
    assert verdict.healthy is False
    assert verdict.message == "GET /healthz answered 500"


@pytest.mark.parametrize(
    ("extension", "field"),
    [
        ({}, "process.command"),
        ({"command": "sleep 1"}, "process.command"),
        ({"command": ["a"], "workdir": 3}, "process.workdir"),
        ({"command": ["a"], "health": {"tcp": "nowhere"}}, "process.health"),
        ({"command": ["a"], "health": {"http": "ftp://x"}}, "process.health"),
        ({"command": ["a"], "health": {"command": "x"}}, "process.health"),
        ({"command": ["a"], "health": {"http": "http://x", "retries": "many"}}, "process.health"),
    ],
)
def test_a_wrong_extension_is_refused_by_its_field(extension: dict[str, Any], field: str) -> None:
    with pytest.raises(WorkFailed, match=field) as failure:
        read_spec(spec(extension), CustomKind.PROCESS)
    assert failure.value.code is Code.CREATE_FAILED


def test_probes_are_read_from_short_forms() -> None:
    read = [
        read_spec(spec({"command": ["a"], "health": health}), CustomKind.PROCESS).probe
        for health in ({"http": "http://h/a?b"}, {"tcp": ":9"})
    ]
    assert read == [HttpProbe("h", 80, "/a?b"), TcpProbe("127.0.0.1", 9)]


async def test_a_program_that_cannot_be_written_down_is_not_left_running(
    tmp_path: Path, runtime: ProcessRuntime
) -> None:
    """Nobody would find it again, and another would be started beside it."""
    folder = tmp_path / "data" / "process" / ID / "web"
    folder.mkdir(parents=True)
    (folder / "state.json.new").symlink_to("/dev/full")
    pids = tmp_path / "pids"
    with pytest.raises(WorkFailed) as failure:
        await runtime.apply(shell(tmp_path, f"echo $$ >> {pids}; exec sleep 60"), ignore)
    assert failure.value.code is Code.DISK_FULL
    started = [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
    await eventually(lambda: not any(lives(pid) for pid in started))
    (folder / "state.json.new").unlink()
    await runtime.apply(shell(tmp_path, "exec sleep 60"), ignore)
    assert (await container(runtime)).running
