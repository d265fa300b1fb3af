"""What people do to running components by hand is seen, and applying them again mends it; secrets stay unseen."""

from dataclasses import replace
from pathlib import Path

import pytest

from homeport.core.secrets import SecretValue, filled
from homeport.errors import WorkFailed
from homeport.ports import Observation, Runtime, Workload
from homeport.vocabulary import Code, ProfileType
from tests.conformance.runtime.conftest import ONE_OF_EACH_MAKE, stand_of
from tests.conformance.runtime.stands import ImageStand, Stand
from tests.conformance.runtime.usage import ids, ignore, install, observe_one, read_logs
from tests.support.health import settle
from tests.support.orders import a_release
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(params=ONE_OF_EACH_MAKE)
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    """Charts become pods, whose containers are not ours to count; `test_helm` has their own tests."""
    return stand_of(request, tmp_path)


VALUE = "a-value-that-nobody-may-see-4711"


async def not_running(runtime: Runtime, stand: Stand) -> Observation:
    async def look() -> Observation | None:
        seen = await observe_one(runtime, stand.deployment_id)
        return None if seen.is_running else seen

    found: Observation = await eventually(look)
    return found


async def test_a_killed_component_is_seen_and_started_again(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    await install(runtime, workload)
    (container,) = (await observe_one(runtime, stand.deployment_id)).containers
    samples = await runtime.sample_health(workload, lambda run, rules: False)
    if not stand.kill(container):
        assert runtime.name == "null", "only the fake has nothing to kill"
        return
    first = {sample.run for sample in samples}
    seen = await not_running(runtime, stand)
    assert seen.digest == workload.spec.digest
    assert seen.containers[0].exit_code != 0
    assert (await settle(runtime, workload)).healthy is False
    await install(runtime, workload)
    assert (await settle(runtime, workload)).healthy
    again = {sample.run for sample in await runtime.sample_health(workload, lambda run, rules: False)}
    assert again.isdisjoint(first), "a restart is another run, whatever keeps its id"
    if workload.spec.type is not ProfileType.CUSTOM or isinstance(stand, ImageStand):
        assert await ids(runtime, stand) == {container.id}, "a container is started, not replaced"


async def test_a_component_removed_by_hand_is_missed_and_comes_back(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    await install(runtime, workload)
    (container,) = (await observe_one(runtime, stand.deployment_id)).containers
    if not stand.remove(container):
        assert runtime.name in ("null", "process"), "these have nothing that could be removed by hand"
        return
    assert list(await runtime.observe(stand.deployment_id)) == []
    await install(runtime, workload)
    assert (await settle(runtime, workload)).healthy
    assert container.id not in await ids(runtime, stand)


async def test_a_frozen_component_does_not_count_as_running(runtime: Runtime, stand: Stand) -> None:
    workload = await stand.runs(GREETING="hello")
    await install(runtime, workload)
    (container,) = (await observe_one(runtime, stand.deployment_id)).containers
    if not stand.freeze(container):
        assert runtime.name in ("null", "process"), "these cannot be frozen through an engine"
        return
    assert not (await observe_one(runtime, stand.deployment_id)).is_running
    assert "paused" in (await settle(runtime, workload)).message
    await install(runtime, workload)
    assert (await settle(runtime, workload)).healthy


async def test_a_stranger_under_the_name_of_ours_is_replaced(image_runtime: Runtime, image_stand: ImageStand) -> None:
    workload = await image_stand.runs(GREETING="hello")
    await install(image_runtime, workload)
    (container,) = (await observe_one(image_runtime, image_stand.deployment_id)).containers
    image_stand.remove(container)
    image_stand.run_by_hand(container.name)
    try:
        assert list(await image_runtime.observe(image_stand.deployment_id)) == []
        await install(image_runtime, workload)
        assert (await settle(image_runtime, workload)).healthy
    finally:
        image_stand.forget_container(container.name)


async def test_only_the_changed_component_is_replaced(runtime: Runtime, stand: Stand) -> None:
    web = await stand.runs(GREETING="hello")
    worker = stand.named(web, "worker")
    for workload in (web, worker):
        await install(runtime, workload)
    before = {seen.component: seen.containers[0].id for seen in await runtime.observe(stand.deployment_id)}
    changed = stand.named(await stand.runs(GREETING="ahoy"), "worker")
    for workload in (web, changed):
        await install(runtime, workload)
    after = {seen.component: seen.containers[0].id for seen in await runtime.observe(stand.deployment_id)}
    assert after["web"] == before["web"]
    assert after["worker"] != before["worker"]


def with_secret(workload: Workload, *, as_file: bool = False) -> Workload:
    ours = dict(workload.spec.extensions.get("x-homeport-extensions", {}))
    if as_file:
        ours["secrets"] = {"files": {"/run/secrets/greeting": "GREETING"}}
    spec = replace(
        workload.spec,
        environment={"GREETING": "secret://DB"},
        extensions={"x-homeport-extensions": ours} if ours else {},
    )
    (part,) = filled(a_release(spec), {"DB": SecretValue(3, VALUE)}).components
    return replace(workload, spec=part)


async def test_a_secret_reaches_the_workload_and_nobody_else(runtime: Runtime, stand: Stand) -> None:
    workload = with_secret(await stand.runs())
    await install(runtime, workload)
    if runtime.name != "null":
        assert f"greeting={VALUE}" in await read_logs(runtime, workload, VALUE)
    seen = await observe_one(runtime, stand.deployment_id)
    assert VALUE not in repr(seen)
    assert VALUE not in stand.known_of(seen.containers[0])


async def test_a_secret_as_a_file_is_no_variable(runtime: Runtime, stand: Stand) -> None:
    workload = with_secret(await stand.runs(), as_file=True)
    if runtime.name == "process":
        with pytest.raises(WorkFailed, match="not files"):
            await install(runtime, workload)
        return
    await install(runtime, workload)
    if runtime.name != "null":
        text = await read_logs(runtime, workload, "greeting=")
        assert VALUE in text
        assert f"greeting={VALUE}" not in text
    seen = await observe_one(runtime, stand.deployment_id)
    assert VALUE not in stand.known_of(seen.containers[0])


async def test_an_image_goes_only_where_that_is_asked(image_runtime: Runtime, image_stand: ImageStand) -> None:
    told: list[tuple[str, int, int]] = []
    image_stand.forget_image()
    workload = await image_stand.runs(GREETING="hello")
    await image_runtime.prepare(workload, lambda step, _, done, total: told.append((step, done, total)))
    assert {step for step, _, _ in told} == {"pulling"}
    assert told[-1][1] == told[-1][2] > 0
    await image_runtime.apply(workload, ignore)
    await image_runtime.remove(image_stand.deployment_id, "web", remove_images=False)
    assert image_stand.has_image()
    await install(image_runtime, workload)
    await image_runtime.remove(image_stand.deployment_id, "web", remove_images=True)
    assert not image_stand.has_image()


async def test_a_component_that_says_nothing_of_what_it_runs_is_refused(image_stand: ImageStand) -> None:
    workload = await image_stand.runs(GREETING="hello")
    workload = replace(workload, spec=replace(workload.spec, extensions={}))
    async with image_stand.opened() as runtime:
        with pytest.raises(WorkFailed, match="say neither image nor process") as failure:
            await runtime.prepare(workload, ignore)
    assert failure.value.code is Code.CREATE_FAILED
