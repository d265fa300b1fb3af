"""What every runtime promises, asked of each of them with real workloads."""

import anyio
import pytest

from homeport.errors import WorkFailed
from homeport.ports import Health, Observation, Runtime, Workload
from homeport.vocabulary import Code, DeploymentId
from tests.conformance.runtime.stands import Stand

pytestmark = pytest.mark.anyio


def ignore(step: str, message: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


async def install(runtime: Runtime, workload: Workload) -> None:
    await runtime.prepare(workload, ignore)
    await runtime.apply(workload, ignore)


async def observe_one(runtime: Runtime, deployment_id: DeploymentId) -> Observation:
    (observation,) = await runtime.observe(deployment_id)
    return observation


async def ids(runtime: Runtime, stand: Stand) -> set[str]:
    return {container.id for container in (await observe_one(runtime, stand.deployment_id)).containers}


async def settle(runtime: Runtime, workload: Workload, *, seconds: float = 20.0) -> Health:
    """Asks until the runtime knows."""
    with anyio.fail_after(seconds):
        while True:
            health = await runtime.health(workload)
            if health.healthy is not None:
                return health
            await anyio.sleep(0.1)


async def eventually_unhealthy(runtime: Runtime, workload: Workload) -> None:
    for _ in range(200):
        if (await runtime.health(workload)).healthy is False:
            return
        await anyio.sleep(0.05)
    pytest.fail("a workload that has ended is still called healthy")


async def read_logs(runtime: Runtime, workload: Workload, expected: str) -> str:
    """The log once it holds `expected`, or as it is after a while: a name asked for too early costs seconds."""
    text = ""
    with anyio.move_on_after(30.0):
        while expected not in text:
            await anyio.sleep(0.05)
            text = b"".join([chunk async for chunk in runtime.logs(workload, tail=100)]).decode()
    return text


async def test_an_applied_component_runs_with_the_digest_of_its_spec(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    await install(runtime, workload)
    observation = await observe_one(runtime, stand.deployment_id)
    assert observation.component == "web"
    assert observation.digest == workload.spec.digest
    assert observation.is_running
    assert observation.containers[0].id
    assert await settle(runtime, workload) == Health(True)


async def test_repeating_an_order_keeps_what_runs(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    await install(runtime, workload)
    before = await ids(runtime, stand)
    await install(runtime, workload)
    assert await ids(runtime, stand) == before


async def test_a_changed_environment_replaces_what_runs(runtime: Runtime, stand: Stand) -> None:
    await install(runtime, await stand.runs(GREETING="hello"))
    before = await ids(runtime, stand)
    changed = await stand.runs(GREETING="ahoy")
    await install(runtime, changed)
    observation = await observe_one(runtime, stand.deployment_id)
    assert observation.digest == changed.spec.digest
    assert observation.is_running
    assert {container.id for container in observation.containers}.isdisjoint(before)


async def test_a_parameter_reaches_the_workload_unchanged(runtime: Runtime, stand: Stand) -> None:
    value = "a $b ${c} \"d\" 'e' #f"
    workload = await stand.runs(GREETING=value)
    await install(runtime, workload)
    assert value in await read_logs(runtime, workload, value)


async def test_a_reopened_runtime_sees_the_same_containers(stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    async with stand.opened() as first:
        await install(first, workload)
        before = await ids(first, stand)
    async with stand.opened() as second:
        try:
            assert await ids(second, stand) == before
            await install(second, workload)
            assert await ids(second, stand) == before
            assert (await settle(second, workload)).healthy
        finally:
            await second.remove(stand.deployment_id, "web", remove_images=False)


async def test_an_unhealthy_workload_is_reported_with_its_reason(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.unhealthy()
    await install(runtime, workload)
    health = await settle(runtime, workload)
    assert health.healthy is False
    assert health.message


async def test_what_cannot_be_had_fails_with_its_code(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.missing()
    with pytest.raises(WorkFailed) as failure:
        await install(runtime, workload)
    assert failure.value.code == stand.code_of_missing
    assert failure.value.source == "web"
    assert not any(observation.is_running for observation in await runtime.observe(stand.deployment_id))


async def test_a_workload_that_ends_at_once_is_never_healthy(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.exits()
    try:
        await install(runtime, workload)
    except WorkFailed as failure:
        # Whether it is seen this early depends on the moment.
        assert failure.code is Code.EXITED
    await eventually_unhealthy(runtime, workload)
    assert not any(observation.is_running for observation in await runtime.observe(stand.deployment_id))


async def test_removal_leaves_nothing_and_can_be_repeated(runtime: Runtime, stand: Stand) -> None:
    await install(runtime, await stand.runs(GREETING="hello"))
    for _ in range(2):
        await runtime.remove(stand.deployment_id, "web", remove_images=False)
        assert list(await runtime.observe(stand.deployment_id)) == []


async def test_a_removed_component_can_be_installed_again(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    await install(runtime, workload)
    before = await ids(runtime, stand)
    await runtime.remove(stand.deployment_id, "web", remove_images=False)
    await install(runtime, workload)
    assert (await ids(runtime, stand)).isdisjoint(before)


async def test_nothing_is_there_before_anything_was_applied(runtime: Runtime, stand: Stand) -> None:
    assert list(await runtime.observe(stand.deployment_id)) == []
    workload = await stand.runs(GREETING="hello")
    assert (await runtime.health(workload)).healthy is False
    await runtime.remove(stand.deployment_id, "web", remove_images=True)


async def test_a_component_of_another_type_is_refused_by_code(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.of_other_type()
    if workload is None:
        assert len(runtime.profile_types) == 3
        return
    with pytest.raises(WorkFailed) as failure:
        await install(runtime, workload)
    assert failure.value.code is Code.UNSUPPORTED_TYPE


async def test_the_runtime_says_its_name_and_version(runtime: Runtime) -> None:
    assert runtime.name in ("null", "process", "podman", "docker", "containerd")
    assert await runtime.version()
