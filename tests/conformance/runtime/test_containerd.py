"""containerd's own side: the machine's network, logs within bounds, a daemon that comes and goes, and its doctor."""

from dataclasses import replace
from pathlib import Path

import pytest

from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.doctor.diagnosis import EngineVerdict, diagnose
from homeport.errors import EngineUnavailable, WorkFailed
from homeport.ports import KeepsData, Runtime, SharedEngine
from homeport.vocabulary import Code, NodeId, ProfileType
from tests.conformance.runtime.stands import STAYS, ImageStand
from tests.conformance.runtime.usage import ids, ignore, install, observe_one, read_logs, runs
from tests.support.engines import containerd_daemon, ctr, engine_environment
from tests.support.health import settle
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def containerd_stand(containerd_socket: Path, tmp_path: Path, registry_host: str, image: str) -> ImageStand:
    options = EngineOptions(environment=engine_environment(), socket=containerd_socket)
    return ImageStand("containerd", tmp_path, registry_host, options, image=image)


async def test_arguments_alone_keep_what_the_image_starts(image_runtime: Runtime, image_stand: ImageStand) -> None:
    workload = image_stand.workload(
        environment={"GREETING": "by arguments"},
        extensions={"image": {"reference": image_stand.image, "args": ["sh", "-c", STAYS]}},
    )
    await install(image_runtime, workload)
    assert "greeting=by arguments" in await read_logs(image_runtime, workload, "by arguments")


async def test_a_web_server_on_the_machines_network_is_asked_from_outside(
    image_runtime: Runtime, image_stand: ImageStand
) -> None:
    port = free_port()
    workload = image_stand.one(
        command=["sh", "-c", f"trap 'exit 0' TERM; httpd -f -p 127.0.0.1:{port} -h /bin & wait"],
        network="host",
        health={"http": f"http://127.0.0.1:{port}/busybox", "interval_seconds": 1},
    )
    await install(image_runtime, workload)
    assert (await settle(image_runtime, workload)).healthy


async def test_a_volume_outlives_its_component(image_runtime: Runtime, image_stand: ImageStand) -> None:
    script = "echo before=$(cat /data/note 2>/dev/null); echo kept > /data/note; " + STAYS
    mounts = [{"source": "notes", "target": "/data"}]
    workload = replace(image_stand.one(command=["sh", "-c", script], mounts=mounts), name=image_stand.deployment_id)
    await install(image_runtime, workload)
    await read_logs(image_runtime, workload, "greeting=")
    await image_runtime.remove(image_stand.deployment_id, "web", remove_images=False)
    await install(image_runtime, workload)
    assert "before=kept" in await read_logs(image_runtime, workload, "greeting=")
    await image_runtime.remove(image_stand.deployment_id, "web", remove_images=False)
    assert isinstance(image_runtime, KeepsData)
    await image_runtime.remove_data(image_stand.deployment_id, "web", name=workload.name)
    await install(image_runtime, workload)
    assert "before=kept" not in await read_logs(image_runtime, workload, "greeting=")
    await image_runtime.remove(image_stand.deployment_id, "web", remove_images=False)
    await image_runtime.remove_data(image_stand.deployment_id, "web", name=workload.name)


async def test_compose_is_refused_with_the_reason(containerd_stand: ImageStand) -> None:
    async with containerd_stand.opened() as runtime:
        assert runtime.profile_types == (ProfileType.CUSTOM,)
        with pytest.raises(WorkFailed, match="containerd runs single images") as failure:
            await runtime.prepare(containerd_stand.workload(type_=ProfileType.COMPOSE), ignore)
    assert failure.value.code is Code.UNSUPPORTED_TYPE


async def test_a_log_is_kept_within_bounds(containerd_stand: ImageStand) -> None:
    script = "yes 0123456789abcdef | head -c 25000000; echo last; " + STAYS
    async with containerd_stand.opened() as runtime:
        try:
            workload = containerd_stand.one(command=["sh", "-c", script])
            await install(runtime, workload)

            async def said() -> bool:
                return any([b"greeting=" in line async for line in runtime.logs(workload, tail=1)])

            await eventually(said)
            logs = list((containerd_stand.folder / "data" / "containerd").glob("*.log*"))
            assert len(logs) == 2
            assert sum(log.stat().st_size for log in logs) < 21 * 2**20
        finally:
            await runtime.remove(containerd_stand.deployment_id, "web", remove_images=False)
        assert list((containerd_stand.folder / "data" / "containerd").glob("*.log*")) == []


async def test_containers_outlive_a_containerd_that_cannot_be_reached(
    tmp_path: Path, registry_host: str, image: str
) -> None:
    with containerd_daemon() as socket:
        options = EngineOptions(environment=engine_environment(), socket=socket)
        stand = ImageStand("containerd", tmp_path, registry_host, options, image=image)
        async with stand.opened() as runtime:
            workload = await stand.runs(GREETING="hello")
            await install(runtime, workload)
            before = await ids(runtime, stand)
            moved = socket.rename(socket.with_name("away.sock"))
            with pytest.raises(EngineUnavailable, match="does not answer: its socket is not there"):
                await runtime.observe(stand.deployment_id)
            moved.rename(socket)
            await install(runtime, workload)
            assert await ids(runtime, stand) == before
            assert (await observe_one(runtime, stand.deployment_id)).is_running
            await runtime.remove(stand.deployment_id, "web", remove_images=True)


async def test_a_container_that_is_started_again_is_another_run(
    image_runtime: Runtime, image_stand: ImageStand
) -> None:
    """It keeps its id and the time of its creation; without a check, a run is believed only when it goes on."""
    workload = await image_stand.runs(GREETING="hello")
    await install(image_runtime, workload)
    before = await ids(image_runtime, image_stand)
    first = await runs(image_runtime, workload)
    ((container,),) = [seen.containers for seen in await image_runtime.observe(image_stand.deployment_id)]
    assert image_stand.kill(container)

    async def has_ended() -> bool:
        return not (await observe_one(image_runtime, image_stand.deployment_id)).is_running

    await eventually(has_ended)
    await install(image_runtime, workload)
    assert (await observe_one(image_runtime, image_stand.deployment_id)).is_running
    assert first and (await runs(image_runtime, workload)).isdisjoint(first)
    if image_stand.kind == "containerd":
        assert await ids(image_runtime, image_stand) == before


async def test_the_doctor_tries_it_and_says_what_it_cannot_do(containerd_socket: Path) -> None:
    options = EngineOptions(environment=engine_environment(), socket=containerd_socket)
    works, limits = await diagnose("containerd", options)
    assert (works.verdict, limits.verdict) == (EngineVerdict.OK, EngineVerdict.NOTE)
    assert works.sentence.startswith("containerd 1.") or works.sentence.startswith("containerd 2.")
    assert "single images only" in limits.sentence
    left = ctr(containerd_socket, "containers", "ls", "-q").split()
    assert [each for each in left if each.startswith("homeport-doctor")] == [], left


async def test_a_secret_of_several_lines_is_no_variable(containerd_stand: ImageStand) -> None:
    spec = (await containerd_stand.runs()).spec
    lines = replace(spec, environment={"GREETING": "secret://PEM"}, secrets={"PEM": 1}, secret_values={"PEM": "a\nb"})
    workload = replace(await containerd_stand.runs(), spec=lines)
    async with containerd_stand.opened() as runtime:
        with pytest.raises(WorkFailed, match="several lines") as failure:
            await install(runtime, workload)
    assert failure.value.code is Code.CREATE_FAILED


async def test_what_is_there_is_listed_by_its_labels_and_removed_for_its_own_node_alone(
    containerd_stand: ImageStand,
) -> None:
    async with containerd_stand.opened() as runtime:
        assert isinstance(runtime, SharedEngine)
        await install(runtime, containerd_stand.one())
        (mine,) = [each for each in await runtime.owned() if each.deployment_id == containerd_stand.deployment_id]
        await runtime.remove_owned(replace(mine, node_id=NodeId("somebody-else")))
        assert await runtime.observe(containerd_stand.deployment_id)
        await runtime.remove_owned(mine)
        assert list(await runtime.observe(containerd_stand.deployment_id)) == []
