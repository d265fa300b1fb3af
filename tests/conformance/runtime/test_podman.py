"""Podman's own side: its API service lives as long as we do, comes back when it dies, and takes global arguments."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from homeport.adapters.network.http_client import Address
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.compose.files import LABEL_COMPONENT, LABEL_DEPLOYMENT, LABEL_NODE, project_name
from homeport.adapters.runtime.detect import open_runtime
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.podman.api import PodmanApi
from homeport.ports import FollowsOutput, OutputLine, SharedEngine
from homeport.vocabulary import DeploymentId, NodeId
from tests.conformance.runtime.stands import STAYS_SERVICE, ComposeStand, HelmStand, ImageStand
from tests.conformance.runtime.usage import ids_by_name, ignore, install
from tests.support.engines import engine_environment, unmount_below
from tests.support.health import settle
from tests.support.podman import podman

pytestmark = pytest.mark.anyio

HOLDER = """
import anyio, sys
from pathlib import Path
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.detect import open_runtime

async def main():
    await open_runtime("podman", Path(sys.argv[1]), OciRegistry(), "holder")
    print("open", flush=True)
    await anyio.sleep(60)

anyio.run(main)
"""


@pytest.fixture
def podman_stand(tmp_path: Path, registry_host: str, image: str) -> ComposeStand:
    options = EngineOptions(environment=engine_environment())
    return ComposeStand("podman", tmp_path, registry_host, options, image=image)


def service_pids(data: Path) -> list[int]:
    """Processes that serve the socket in this folder."""
    wanted = f"unix://{data}/podman.sock".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in words and b"service" in words:
            found.append(int(path.parent.name))
    return found


async def test_a_service_that_was_killed_is_brought_back(podman_stand: ComposeStand) -> None:
    async with podman_stand.opened() as runtime:
        (pid,) = service_pids(podman_stand.folder / "data")
        os.kill(pid, signal.SIGKILL)
        assert await runtime.version()
    assert service_pids(podman_stand.folder / "data") == []


async def test_a_node_that_asks_for_the_version_starts_no_program(podman_stand: ComposeStand) -> None:
    """It asks every ten seconds, all the time."""
    async with podman_stand.opened() as runtime:
        (pid,) = service_pids(podman_stand.folder / "data")
        before = _of_children(pid)
        versions = {await runtime.version() for _ in range(5)}
        assert _of_children(pid) == before
    (version,) = versions
    assert podman("--version").split()[-1] == version


async def test_a_network_that_was_left_behind_is_used(podman_stand: ComposeStand) -> None:
    """The networks of a new project are created without asking first whether they exist."""
    workload = await podman_stand.runs()
    network = f"{project_name(workload.deployment_id, workload.spec.name, podman_stand.node_id)}_default"
    async with podman_stand.opened() as runtime:
        podman_stand.engine("network", "create", network)
        try:
            await install(runtime, workload)
            (name,) = await ids_by_name(runtime, podman_stand)
            assert network in podman_stand.engine("inspect", "--format", "{{.NetworkSettings.Networks}}", name)
        finally:
            await runtime.remove(podman_stand.deployment_id, workload.spec.name, remove_images=False)
            podman("network", "rm", "--force", network, check=False)


def _of_children(pid: int) -> list[str]:
    """Faults and ticks of the programs that a process has started, and that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return [words[8], words[13], words[14]]


def test_the_service_ends_with_a_node_that_was_killed(tmp_path: Path) -> None:
    environment = {**engine_environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], env=environment, stdout=subprocess.PIPE)
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"open\n"
            assert len(service_pids(tmp_path)) == 1
        finally:
            holder.kill()
    deadline = time.monotonic() + 10
    while service_pids(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert service_pids(tmp_path) == []


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Podman takes no runroot longer than 50 characters, and leaves its store mounted."""
    folder = Path(tempfile.mkdtemp(prefix="hp-"))
    try:
        yield folder
    finally:
        unmount_below(folder)
        shutil.rmtree(folder)


async def test_global_arguments_reach_every_podman(tmp_path: Path, short_path: Path) -> None:
    store = ("--root", str(short_path / "root"), "--runroot", str(short_path / "run"))
    options = EngineOptions(environment=engine_environment(), podman_args=store)
    runtime = await open_runtime("podman", tmp_path, OciRegistry(), NodeId("n"), options=options)
    try:
        assert list(await runtime.observe(DeploymentId("0"))) == []
    finally:
        await runtime.close()
    assert (short_path / "root").is_dir()
    assert (tmp_path / "podman").read_text() == f'#!/bin/sh\nexec podman {" ".join(store)} "$@"\n'


async def test_a_container_that_is_removed_by_half_hides_no_other(
    tmp_path: Path, short_path: Path, image: str
) -> None:
    """Known to Podman and gone from its storage, as in the middle of a removal."""
    store = ("--root", str(short_path / "root"), "--runroot", str(short_path / "run"))
    environment = engine_environment()

    def podman(*arguments: str) -> None:
        subprocess.run(["podman", *store, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)

    podman("pull", "-q", "--tls-verify=false", image)
    for name in ("half", "whole"):
        labels = {LABEL_NODE: "n", LABEL_DEPLOYMENT: name, LABEL_COMPONENT: "web"}
        given = [f"--label={key}={value}" for key, value in labels.items()]
        podman("create", "--name", name, "-p", "127.0.0.1:18123-18124:80-81", *given, image, "/bin/sh")
    (records,) = (short_path / "root").glob("*-containers/containers.json")
    known = json.loads(records.read_text())
    records.write_text(json.dumps([each for each in known if "half" not in each["names"]]))
    options = EngineOptions(environment=environment, podman_args=store)
    runtime = await open_runtime("podman", tmp_path, OciRegistry(), NodeId("n"), options=options)
    try:
        assert isinstance(runtime, SharedEngine)
        assert [each.deployment_id for each in await runtime.owned()] == ["half", "whole"]
        assert await runtime.observe(DeploymentId("whole"))
        await runtime.remove(DeploymentId("whole"), "web", remove_images=False)
        assert not await runtime.observe(DeploymentId("whole"))
    finally:
        await runtime.close()


async def test_a_deep_data_folder_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    options = EngineOptions(environment=engine_environment())
    runtime = await open_runtime("podman", deep, OciRegistry(), NodeId("n"), options=options)
    try:
        assert await runtime.version()
    finally:
        await runtime.close()


async def test_the_first_good_check_is_enough_whatever_the_interval(podman_stand: ComposeStand) -> None:
    check = {"test": ["CMD-SHELL", "test -e /tmp/ready"], "interval": "30s", "retries": 1}
    command = [
        "sh",
        "-c",
        "mkdir -p /tmp; sleep 1; touch /tmp/ready; trap 'exit 0' TERM; while true; do sleep 0.1; done",
    ]
    workload = await podman_stand.services(
        "slow", {"app": {**STAYS_SERVICE, "command": command, "healthcheck": check}}
    )
    async with podman_stand.opened() as runtime:
        try:
            await runtime.prepare(workload, ignore)
            await runtime.apply(workload, ignore)
            assert (await settle(runtime, workload, seconds=15)).healthy
        finally:
            await runtime.remove(podman_stand.deployment_id, "web", remove_images=False)


STUMBLES_ONCE = """#!/bin/sh
# The first container of all is lost as runc loses one now and then on a busy machine.
case " $* " in
*" create "*)
    if mkdir {folder}/stumbled 2>/dev/null; then
        echo "runc create failed: unable to start container process: can't get final child's PID from pipe: EOF" >&2
        exit 1
    fi
    ;;
esac
exec runc "$@"
"""


@pytest.mark.parametrize("make", [ComposeStand, ImageStand])
async def test_a_start_that_the_engine_lost_is_made_again(
    tmp_path: Path, registry_host: str, image: str, make: type[ComposeStand | ImageStand]
) -> None:
    program = tmp_path / "stumbling-runc"
    program.write_text(STUMBLES_ONCE.format(folder=tmp_path))
    program.chmod(0o755)
    options = EngineOptions(environment=engine_environment(), podman_args=("--runtime", str(program)))
    stand = make("podman", tmp_path, registry_host, options, image=image)
    workload = await stand.runs()
    async with stand.opened() as runtime:
        try:
            await runtime.prepare(workload, ignore)
            await runtime.apply(workload, ignore)
            (seen,) = await runtime.observe(workload.deployment_id)
            assert seen.is_running
        finally:
            await runtime.remove(workload.deployment_id, workload.spec.name, remove_images=False)
    assert (tmp_path / "stumbled").is_dir()


@pytest.mark.parametrize("kind", [ComposeStand, ImageStand, HelmStand])
async def test_the_password_of_a_proxy_reaches_no_container(
    tmp_path: Path, registry_host: str, image: str, kind: type[ComposeStand] | type[ImageStand] | type[HelmStand]
) -> None:
    """Podman needs the proxy to pull images, and by itself hands it on to every container that it makes."""
    proxies = {
        "HTTPS_PROXY": "http://ada:pr0xy-password@127.0.0.1:9",
        "http_proxy": "http://ada:pr0xy-password@[::1]:9",
    }
    options = EngineOptions(environment={**engine_environment(), **proxies, "no_proxy": "127.0.0.1,localhost"})
    stand = kind("podman", tmp_path, registry_host, options, image=image)
    async with stand.opened() as runtime:
        try:
            workload = await stand.runs()
            await runtime.prepare(workload, ignore)
            await runtime.apply(workload, ignore)
            seen = await runtime.observe(stand.deployment_id)
            containers = [each.id for component in seen for each in component.containers]
            assert containers
            told = await anyio.to_thread.run_sync(environments_of, containers)
        finally:
            await runtime.remove(stand.deployment_id, "web", remove_images=False)
    assert len(told) == len(containers)
    assert not [each for each in told if "pr0xy-password" in each]


def environments_of(containers: list[str]) -> list[str]:
    command = ["podman", "inspect", "--format", "{{.Config.Env}}", *containers]
    done = subprocess.run(command, env=engine_environment(), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


CHATTY = """\
echo line 0; while [ ! -e /go ]; do sleep 0.1; done
i=0; while [ $$i -lt 20000 ]; do i=$$((i+1)); echo line $$i; done
echo line last; while true; do sleep 1; done
"""


@pytest.mark.parametrize("logging", [{}, {"driver": "k8s-file", "options": {"max-size": "300kb"}}])
async def test_every_line_of_a_chatty_container_is_followed_or_its_loss_is_told(
    podman_stand: ComposeStand, logging: dict[str, object]
) -> None:
    """Podman's own stream leaves some out. The container is removed right after its last line; once its log is
    rotated some thirty times while it is followed."""
    service = {"command": ["sh", "-c", CHATTY], **({"logging": logging} if logging else {})}
    workload = await podman_stand.services("chatty", {"app": service})
    found: list[OutputLine] = []
    async with podman_stand.opened() as runtime:
        assert isinstance(runtime, FollowsOutput)
        try:
            await runtime.prepare(workload, ignore)
            await runtime.apply(workload, ignore)
            (seen,) = await runtime.observe(workload.deployment_id)
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    async for lines in runtime.follow(workload, seen.containers[0], ""):
                        found += lines
                        if len(found) == 1:
                            podman("exec", seen.containers[0].id, "touch", "/go")
                        if lines[-1].text == b"line last":
                            remove = partial(runtime.remove, workload.deployment_id, "web", remove_images=False)
                            tasks.start_soon(remove)
        finally:
            await runtime.remove(podman_stand.deployment_id, "web", remove_images=False)
    texts = [each.text for each in found if each.text is not None]
    numbers = [each.removeprefix(b"line ").replace(b"last", b"20001") for each in texts]
    assert [int(each) for each in numbers] == sorted({int(each) for each in numbers}), "in order, and none twice"
    is_complete = len(texts) == 20_002
    assert is_complete or (logging and any(each.lost for each in found))


def test_a_log_that_is_in_no_file_is_said_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async def nowhere() -> Address:
        raise AssertionError("not asked")

    def inspected(driver: str, path: Path | str) -> dict[str, object]:
        return {"HostConfig": {"LogConfig": {"Type": driver}}, "LogPath": str(path)}

    api = PodmanApi(nowhere)
    there = tmp_path / "ctr.log"
    there.touch()
    with caplog.at_level("INFO", "homeport.runtime"):
        assert api.output_file(inspected("json-file", there)) == there
        assert not caplog.records
        for _ in range(3):
            assert api.output_file(inspected("journald", "")) is None
            assert api.output_file(inspected("none", "")) is None
    assert len(caplog.records) == 1
    assert api.output_file(inspected("json-file", tmp_path / "elsewhere")) is None
