"""What only compose components can show, on Podman and on Docker: several services, images, networks, ports."""

import contextlib
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.core.data import parse_volume
from homeport.errors import WorkFailed
from homeport.ports import KeepsData, Runtime, Workload, container_access
from homeport.vocabulary import Code, DeploymentId, NodeId, Step
from tests.conformance.runtime.conftest import IS_LONG
from tests.conformance.runtime.stands import STAYS_SERVICE, ComposeStand
from tests.conformance.runtime.usage import ids_by_name, ignore, install, read_logs, runs
from tests.support.health import settle
from tests.support.ports import free_port
from tests.support.registry import running_registry

pytestmark = pytest.mark.anyio


async def test_a_stopped_container_is_started_again_not_replaced(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    workload = await compose_stand.runs(GREETING="hello")
    await install(compose_runtime, workload)
    before = await ids_by_name(compose_runtime, compose_stand)
    first_run = await runs(compose_runtime, workload)
    assert {run.id for run in first_run} == set(before.values())
    compose_stand.engine("kill", *before.values())
    (stopped,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert not stopped.is_running
    assert (await settle(compose_runtime, workload)).healthy is False
    await install(compose_runtime, workload)
    (running,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert running.is_running
    assert await ids_by_name(compose_runtime, compose_stand) == before
    second_run = await runs(compose_runtime, workload)
    assert second_run.isdisjoint(first_run), "nobody would notice a container that its engine restarts"


async def test_a_configuration_file_of_the_component_is_mounted_and_each_part_of_creating_is_told(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    told: list[tuple[str, str]] = []
    service = {
        **STAYS_SERVICE,
        "command": ["sh", "-c", "cat /etc/app.conf; trap 'exit 0' TERM; while true; do sleep 0.1; done"],
        "volumes": ["./app.conf:/etc/app.conf:ro"],
    }
    workload = await compose_stand.services(
        "configured", {"app": service}, {"LEVEL": "info"}, files={"app.conf": "greeting = ahoy from a file\n"}
    )
    await compose_runtime.prepare(workload, ignore)
    await compose_runtime.apply(workload, lambda step, message, done, total: told.append((step, message)))
    assert "greeting = ahoy from a file" in await read_logs(compose_runtime, workload, "ahoy from a file")
    assert [step for step, _ in told] == [Step.CREATING, Step.CONFIGURING, Step.NETWORKING, Step.STARTING]
    assert dict(told)[Step.CONFIGURING] == "configuring web: 1 variable"
    assert "default" in dict(told)[Step.NETWORKING]


async def test_a_container_removed_by_hand_is_missed_and_comes_back_alone(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    services = {"cache": STAYS_SERVICE, "app": {**STAYS_SERVICE, "depends_on": ["cache"]}}
    workload = await compose_stand.services("two", services)
    await install(compose_runtime, workload)
    before = await ids_by_name(compose_runtime, compose_stand)
    assert len(before) == 2
    app = next(name for name in before if "app" in name)
    compose_stand.engine("rm", "--force", app)
    (observation,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert not observation.is_running
    assert "app" in (await settle(compose_runtime, workload)).message
    await install(compose_runtime, workload)
    after = await ids_by_name(compose_runtime, compose_stand)
    assert {name for name in before if after[name] != before[name]} == {app}


async def test_a_taken_port_is_named_and_a_later_try_succeeds(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    port = free_port()
    workload = replace(
        await compose_stand.services("port", {"app": {**STAYS_SERVICE, "ports": [f"127.0.0.1:{port}:80"]}}),
        name="shop",
        site="home",
    )
    taken = f"web could not be started: port {port} is already in use on this machine by"
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(WorkFailed) as failure:
            await install(compose_runtime, workload)
        assert failure.value.code is Code.CREATE_FAILED
        assert str(failure.value).startswith(taken) and str(failure.value).endswith(f" (pid {os.getpid()})")
    await install(compose_runtime, workload)
    (observation,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert observation.is_running
    other = replace(workload, deployment_id=DeploymentId(str(uuid.uuid4())), name="second")
    with pytest.raises(WorkFailed) as failure:
        await install(compose_runtime, other)
    assert str(failure.value) == f"{taken} shop@home"
    await compose_runtime.remove(other.deployment_id, "web", remove_images=False)


async def test_removal_needs_no_files_and_leaves_no_network(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    workload = await compose_stand.runs(GREETING="hello")
    await install(compose_runtime, workload)
    project = next(iter(await ids_by_name(compose_runtime, compose_stand))).partition("_")[0]
    assert project in compose_stand.engine("network", "ls")
    shutil.rmtree(workload.folder)
    await compose_runtime.remove(compose_stand.deployment_id, "web", remove_images=False)
    assert project not in compose_stand.engine("network", "ls")
    assert list(await compose_runtime.observe(compose_stand.deployment_id)) == []


async def test_what_was_fetched_once_starts_without_a_registry(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    with running_registry() as registry:
        workload = await compose_stand.services("offline", {"app": STAYS_SERVICE}, host=registry.host)
        await compose_runtime.prepare(workload, ignore)
    changed = replace(workload, spec=replace(workload.spec, environment={"GREETING": "ahoy"}))
    await install(compose_runtime, changed)
    (observation,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert observation.digest == changed.spec.digest


@contextlib.contextmanager
def no_network_left_behind() -> Iterator[None]:
    """Podman that is killed while it makes a container forgets the network namespace it had made for it."""
    folder = Path("/run/netns")
    before = set(folder.glob("netns-*"))
    yield
    for namespace in set(folder.glob("netns-*")) - before:
        if not subprocess.run(["ip", "netns", "pids", namespace.name], capture_output=True, check=False).stdout:
            subprocess.run(["ip", "netns", "delete", namespace.name], capture_output=True, check=False)


async def cancel_when_one_is_made(runtime: Runtime, workload: Workload, cut: anyio.CancelScope) -> None:
    while not any(each.containers for each in await runtime.observe(workload.deployment_id)):
        pass  # Without a pause, which both may need no longer than.
    cut.cancel()


async def test_a_cancelled_apply_is_repaired_by_the_next(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    workload = await compose_stand.services("cut", dict.fromkeys(("one", "two", "three", "four"), STAYS_SERVICE))
    await compose_runtime.prepare(workload, ignore)
    with no_network_left_behind():
        with anyio.CancelScope() as cut:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when_one_is_made, compose_runtime, workload, cut)
                await compose_runtime.apply(workload, ignore)
                tasks.cancel_scope.cancel()
        assert cut.cancelled_caught
        await install(compose_runtime, workload)
    (observation,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert observation.is_running
    assert len(observation.containers) == 4


async def test_parameters_choose_the_image_but_not_the_tool(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    repository, _, tag = compose_stand.image.rpartition(":")
    service = {**STAYS_SERVICE, "image": f"{repository}:${{TAG:?is needed}}"}
    workload = await compose_stand.services(
        "chosen", {"app": service}, {"TAG": tag, "PATH": "/bin", "PYTHONHOME": "/x"}
    )
    await install(compose_runtime, workload)
    (observation,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert observation.is_running


async def test_an_unknown_component_fails_with_its_code(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    workload = compose_stand.workload(repository=f"oci://{compose_stand.registry_host}/nobody-pushed-this")
    with pytest.raises(WorkFailed) as failure:
        await compose_runtime.prepare(workload, ignore)
    assert failure.value.code is Code.COMPONENT_FETCH_FAILED
    assert not list(workload.folder.glob("*"))


async def test_an_image_is_pulled_with_progress_and_removed_when_asked(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    told: list[tuple[str, int, int]] = []
    workload = await compose_stand.runs(GREETING="hello")
    compose_stand.forget_image()
    await compose_runtime.prepare(workload, lambda step, _, done, total: told.append((step, done, total)))
    assert told[0][0] == Step.FETCHING
    assert told[-1][0] == Step.PULLING
    assert told[-1][1] == told[-1][2] > 0
    await compose_runtime.apply(workload, ignore)
    await compose_runtime.remove(compose_stand.deployment_id, "web", remove_images=True)
    assert not compose_stand.has_image()


async def test_two_nodes_on_one_engine_keep_apart(compose_runtime: Runtime, compose_stand: ComposeStand) -> None:
    workload = await compose_stand.runs(GREETING="hello")
    await install(compose_runtime, workload)
    before = await ids_by_name(compose_runtime, compose_stand)
    other = replace(compose_stand, node_id=NodeId("another-node"), folder=compose_stand.folder / "other")
    async with other.opened() as neighbour:
        try:
            assert list(await neighbour.observe(compose_stand.deployment_id)) == []
            await install(neighbour, await other.runs(GREETING="hello"))
        finally:
            await neighbour.remove(compose_stand.deployment_id, "web", remove_images=False)
    assert await ids_by_name(compose_runtime, compose_stand) == before


HOOKED_ENGINES = ("podman", "docker") if IS_LONG else ("docker",)
"""`make test` has the same on Podman among the faults."""


def hooked(command: str) -> dict[str, dict[str, Any]]:
    """An app that starts when another service has done its work."""
    needs = {"hook": {"condition": "service_completed_successfully"}}
    return {"hook": {"command": ["sh", "-c", command]}, "app": {**STAYS_SERVICE, "depends_on": needs}}


@pytest.mark.parametrize("compose_stand", HOOKED_ENGINES, indirect=True)
async def test_a_service_that_ends_before_others_start_is_not_missed_afterwards(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    workload = await compose_stand.services("hook", hooked("exit 0"))
    await install(compose_runtime, workload)
    assert (await settle(compose_runtime, workload)).healthy
    (observation,) = await compose_runtime.observe(compose_stand.deployment_id)
    assert observation.is_running
    before = await ids_by_name(compose_runtime, compose_stand)
    assert len(before) == 1
    await install(compose_runtime, workload)
    assert await ids_by_name(compose_runtime, compose_stand) == before


@pytest.mark.parametrize("compose_stand", HOOKED_ENGINES, indirect=True)
async def test_a_service_that_fails_before_others_start_fails_the_component(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    workload = await compose_stand.services("hook-fails", hooked("exit 3"))
    with pytest.raises(WorkFailed) as failure:
        await install(compose_runtime, workload)
    assert failure.value.code is Code.EXITED
    assert "hook" in str(failure.value)
    assert "exit code 3" in str(failure.value)


async def listed_volumes(runtime: Runtime, owner: str) -> dict[str, bool]:
    """By the name that the app gives: whether a container has it."""
    access = container_access(runtime)
    assert access is not None
    found = [(parse_volume(each.name), each.is_used) for each in await access.data_volumes()]
    return {parsed[1]: used for parsed, used in found if parsed is not None and parsed[0] == owner}


async def test_a_volume_belongs_to_the_deployments_name_and_older_ones_are_found_where_they_are(
    compose_runtime: Runtime, compose_stand: ComposeStand
) -> None:
    def service(script: str) -> dict[str, Any]:
        loop = "trap 'exit 0' TERM; while true; do sleep 0.1; done"
        return {**STAYS_SERVICE, "command": ["sh", "-c", f"{script}; {loop}"], "volumes": ["data:/data"]}

    def volumes() -> list[str]:
        parts = (name, compose_stand.deployment_id.replace("-", "")[:12])
        wanted = ["volume", "ls", "--quiet", "--filter"]
        return [each for part in parts for each in compose_stand.engine(*wanted, f"name={part}").split()]

    name, other = f"shop-{compose_stand.deployment_id[:8]}", DeploymentId(str(uuid.uuid4()))
    scripts = {"write": "echo precious > /data/file", "append": "echo older >> /data/file", "read": "cat /data/file"}
    write, append, read = [
        await compose_stand.services(key, {"app": service(script)}, volumes=["data"])
        for key, script in scripts.items()
    ]
    try:
        # As it was made before volumes belonged to a name: the deployment finds it again, whatever it is called.
        await install(compose_runtime, append)
        await install(compose_runtime, replace(read, name=name))
        assert "older" in await read_logs(compose_runtime, read, "older")
        await compose_runtime.remove(compose_stand.deployment_id, "web", remove_images=False)
        # Another deployment of the name begins with an empty volume of the name, and leaves it to the next.
        await install(compose_runtime, replace(write, deployment_id=other, name=name))
        await compose_runtime.remove(other, "web", remove_images=False)
        last = replace(read, deployment_id=DeploymentId(str(uuid.uuid4())), name=name)
        await install(compose_runtime, last)
        assert "precious" in await read_logs(compose_runtime, last, "precious")
        assert await listed_volumes(compose_runtime, f"{name}-web") == {"data": True}
        await compose_runtime.remove(last.deployment_id, "web", remove_images=False)
        assert await listed_volumes(compose_runtime, f"{name}-web") == {"data": False}, "kept, and said so"
        # Both kinds go when that is asked for, and nobody else's.
        compose_stand.engine("volume", "create", f"hp-{name}-web-0badcafe_data")
        assert isinstance(compose_runtime, KeepsData)
        for _ in range(2):
            await compose_runtime.remove_data(compose_stand.deployment_id, "web", name=name)
        assert volumes() == [f"hp-{name}-web-0badcafe_data"]
    finally:
        for volume in volumes():
            compose_stand.engine("volume", "rm", "--force", volume)
