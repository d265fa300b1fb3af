"""What every runtime promises, asked of each of them with real workloads."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest
from anyio.to_thread import run_sync

from homeport.core.node.health import HealthVerdict
from homeport.core.node.telemetry_variables import otlp_variables
from homeport.errors import WorkFailed
from homeport.ports import FollowsOutput, OutputLine, Runtime, Workload
from homeport.vocabulary import Code
from tests.conformance.runtime.stands import EngineStand, Stand
from tests.conformance.runtime.usage import ids, install, observe_one, read_logs
from tests.support.health import HealthWatch, settle

pytestmark = pytest.mark.anyio
WITH_CONTAINERS = ("podman", "docker", "podman-image", "docker-image", "containerd-image", "helm")


async def test_an_applied_component_runs_with_the_digest_of_its_spec(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    await install(runtime, workload)
    observation = await observe_one(runtime, stand.deployment_id)
    assert observation.component == "web"
    assert observation.digest == workload.spec.digest
    assert observation.is_running
    assert observation.containers[0].id
    assert await settle(runtime, workload) == HealthVerdict(True)


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


@pytest.mark.parametrize("stand", WITH_CONTAINERS, indirect=True)
async def test_every_container_is_told_where_the_collector_is(stand: Stand) -> None:
    """Whatever makes it; what the app says by that name goes before."""
    assert isinstance(stand, EngineStand)
    variables = dict(otlp_variables("http://10.0.0.1:4318", "http://10.0.0.1:4317", "/etc/collector.pem"))
    assert len(variables) == 4
    stand.options = replace(stand.options, variables={**variables, "GREETING": "of the machine"})
    async with stand.opened() as runtime:
        try:
            await install(runtime, await stand.runs(GREETING="of the app"))
            containers = (await observe_one(runtime, stand.deployment_id)).containers
            told = [await run_sync(stand.environment_of, each) for each in containers]
        finally:
            await runtime.remove(stand.deployment_id, "web", remove_images=False)
    assert told
    for environment in told:
        assert variables.items() <= environment.items()
        assert environment["GREETING"] == "of the app"


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
    # On a busy machine even a program that ends at once runs for a while.
    assert (await HealthWatch(runtime, workload, steady_seconds=30).settle()).healthy is False
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
    assert (await settle(runtime, workload)).healthy is False
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


async def follow_until(runtime: Runtime, workload: Workload, resume: str, expected: str) -> list[OutputLine]:
    """The output after `resume`, up to the first piece with `expected` in it."""
    assert isinstance(runtime, FollowsOutput)
    container = (await observe_one(runtime, workload.deployment_id)).containers[0]
    found: list[OutputLine] = []
    with anyio.fail_after(30.0):
        while True:
            async with aclosing(runtime.follow(workload, container, resume)) as pieces:
                async for lines in pieces:
                    found += lines
                    if any(expected in text for text in texts_of(found)):
                        return found
            await anyio.sleep(0.05)


def texts_of(lines: Sequence[OutputLine]) -> list[str]:
    return [line.text.decode() for line in lines if line.text is not None]


async def test_output_is_followed_and_resumed_without_a_line_twice(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello", SECOND="later")
    await install(runtime, workload)
    found = await follow_until(runtime, workload, "", "hello")
    texts = texts_of(found)
    assert texts == list(dict.fromkeys(texts))
    assert all(line.at is None or abs((datetime.now(UTC) - line.at).total_seconds()) < 600 for line in found)
    first = found[0]
    if len(found) > 1:
        again = await follow_until(runtime, workload, first.resume, texts[-1])
        assert texts_of(again) == texts[1:]
    with anyio.move_on_after(1.0):
        assert isinstance(runtime, FollowsOutput)
        container = (await observe_one(runtime, workload.deployment_id)).containers[0]
        async with aclosing(runtime.follow(workload, container, found[-1].resume)) as pieces:
            async for lines in pieces:
                assert not set(texts_of(lines)) & set(texts)
