"""A whole node on each runtime: every way to fail has its code, and an update pulls before it stops anything."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.order import Result
from homeport.ports import Runtime, SharedEngine, Workload
from homeport.vocabulary import Code, NodeId, Step
from tests.conformance.runtime.conftest import ONE_OF_EACH_MAKE, stand_of
from tests.conformance.runtime.stands import STAYS_SERVICE, ComposeStand, EngineStand, ImageStand, NullStand, Stand
from tests.integration.node.conftest import Bench
from tests.integration.node.conftest import bench as bench  # noqa: PLC0414 - the fixture
from tests.support.orders import to_apply
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(params=ONE_OF_EACH_MAKE)
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    """Charts become pods, whose containers are not ours to count; `test_helm` has their own tests."""
    return stand_of(request, tmp_path)


SECONDS = 60.0


@asynccontextmanager
async def connected(bench: Bench, runtime: Runtime) -> AsyncIterator[None]:
    """A node with this runtime, which it closes at its end; the test still has to clean up with it."""
    try:
        async with bench.connected(runtime):
            yield
    finally:
        await runtime.start()


async def ordered(bench: Bench, stand: Stand, generation: int, *specs: ComponentSpec) -> Result:
    await bench.site.send(to_apply(generation, *specs, key=stand.deployment_id))
    results = bench.site.results
    await bench.site.until(lambda: [each for each in bench.site.results if each not in results], seconds=SECONDS)
    return bench.site.results[-1]


async def failed(bench: Bench, stand: Stand, runtime: Runtime, workload: Workload) -> tuple[str, str]:
    """The code and the message; whose failure it is must be said."""
    async with connected(bench, runtime):
        result = await ordered(bench, stand, 1, workload.spec)
    assert not result.succeeded
    assert result.failure is not None
    assert result.failure.source == "web"
    assert "web" in result.failure.message or "image" in result.failure.message
    assert "Traceback" not in result.failure.message
    return result.failure.code, result.failure.message


async def test_what_cannot_be_fetched(bench: Bench, stand: Stand, runtime: Runtime) -> None:
    code, message = await failed(bench, stand, runtime, await stand.missing())
    assert code == stand.code_of_missing
    if code == Code.IMAGE_PULL_FAILED and not isinstance(stand, NullStand):
        assert "no-such-image" in message


async def test_what_cannot_be_created(bench: Bench, stand: Stand, runtime: Runtime) -> None:
    code, message = await failed(bench, stand, runtime, await stand.uncreatable())
    assert code == Code.CREATE_FAILED
    if isinstance(stand, EngineStand):
        assert 'the image has no program "/no-such-program"' in message


async def test_what_is_unhealthy(bench: Bench, stand: Stand, runtime: Runtime) -> None:
    code, _ = await failed(bench, stand, runtime, await stand.unhealthy())
    assert code == Code.HEALTH_CHECK_FAILED


async def test_what_exits_shows_what_it_wrote_last(bench: Bench, stand: Stand, runtime: Runtime) -> None:
    code, message = await failed(bench, stand, runtime, await stand.exits())
    assert code == Code.EXITED
    assert message.endswith("unknown flag --nope") and ". Its last output: " in message


async def test_what_is_not_ready_in_time(bench: Bench, stand: Stand, runtime: Runtime) -> None:
    workload = await stand.never_ready()
    seconds = 0.5 if isinstance(stand, NullStand) else 10.0
    spec = replace(workload.spec, timeout_seconds=seconds)
    code, message = await failed(bench, stand, runtime, replace(workload, spec=spec))
    assert code == Code.TIMEOUT
    assert f"within {seconds:g} s" in message


async def test_what_is_not_waited_for_succeeds_while_it_is_unhealthy(
    bench: Bench, stand: Stand, runtime: Runtime
) -> None:
    spec = replace((await stand.unhealthy()).spec, wait=False)
    async with connected(bench, runtime):
        result = await ordered(bench, stand, 1, spec)
    assert result.succeeded
    assert Step.CHECKING.value not in bench.site.steps(1)


@pytest.mark.parametrize("wait", [True, False])
async def test_the_next_component_begins_when_the_one_before_it_is_done_where_that_is_waited_for(
    bench: Bench, stand: Stand, runtime: Runtime, wait: bool
) -> None:
    """The first one never becomes healthy: the second is begun only where nobody waits for the first."""
    first = replace((await stand.unhealthy()).spec, wait=wait)
    second = stand.named(await stand.runs(GREETING="hello"), "worker").spec
    try:
        async with connected(bench, runtime):
            result = await ordered(bench, stand, 1, first, second)
    finally:
        await runtime.remove(stand.deployment_id, "worker", remove_images=False)
    assert result.succeeded is not wait
    begun = [each.component for each in bench.site.progress if each.step is Step.CREATING]
    assert list(dict.fromkeys(begun)) == (["web"] if wait else ["web", "worker"])


async def test_an_update_pulls_all_then_stops_starts_and_checks_each(
    bench: Bench, stand: Stand, runtime: Runtime
) -> None:
    web = await stand.runs(GREETING="hello")
    first = (web.spec, stand.named(web, "worker").spec)
    updated = await stand.updated()
    second = (updated.spec, stand.named(updated, "worker").spec)
    if isinstance(stand, EngineStand):
        stand.forget_image(stand.newer_image)
    try:
        async with connected(bench, runtime):
            assert (await ordered(bench, stand, 1, *first)).succeeded
            assert (await ordered(bench, stand, 2, *second)).succeeded
    finally:
        for name in ("web", "worker"):
            await runtime.remove(stand.deployment_id, name, remove_images=name == "worker")
    told = [(each.step, each.component) for each in bench.site.progress if each.generation == 2]
    order = list(dict.fromkeys(told))
    started = [step for step in order if step[0] in (Step.CREATING, Step.HEALTHY)]
    assert started == [(step, name) for name in ("web", "worker") for step in (Step.CREATING, Step.HEALTHY)]
    touched = min(order.index(step) for step in order if step[0] in (Step.STOPPING, Step.CREATING))
    assert all(order.index(step) < touched for step in order if step[0] in (Step.FETCHING, Step.PULLING))
    if isinstance(stand, EngineStand):
        assert (Step.PULLING, "web") in order
    if not isinstance(stand, NullStand):
        stopped = [order.index((Step.STOPPING, name)) for name in ("web", "worker")]
        assert stopped == [order.index((Step.CREATING, name)) - 1 for name in ("web", "worker")]


async def test_the_node_brings_back_what_was_killed(bench: Bench, stand: Stand, runtime: Runtime) -> None:
    web = await stand.runs(GREETING="hello")
    async with connected(bench, runtime):
        assert (await ordered(bench, stand, 1, web.spec)).succeeded
        ((container,),) = [seen.containers for seen in await runtime.observe(stand.deployment_id)]
        if not stand.kill(container):
            assert runtime.name == "null", "only the fake has nothing to kill"
            return
        await eventually(lambda: Step.RESTORED.value in bench.site.steps(1), seconds=SECONDS)
        (seen,) = await runtime.observe(stand.deployment_id)
        assert seen.is_running
    (restored,) = [each for each in bench.site.progress if each.step is Step.RESTORED]
    assert "was not running" in restored.message


def publishing(port: int | None) -> Mapping[str, Mapping[str, Any]]:
    return {"app": {**STAYS_SERVICE, "ports": [f"127.0.0.1:{port}:80"]} if port else dict(STAYS_SERVICE)}


async def test_a_published_port_moves_to_a_renamed_component_and_between_those_that_stay(
    bench: Bench, compose_stand: ComposeStand, compose_runtime: Runtime
) -> None:
    port = free_port()
    holds = await compose_stand.services("holds", publishing(port))
    lacks = await compose_stand.services("lacks", publishing(None))
    front = replace(holds.spec, name="front")
    try:
        async with connected(bench, compose_runtime):
            assert (await ordered(bench, compose_stand, 1, holds.spec)).succeeded
            renamed = await ordered(bench, compose_stand, 2, front)
            assert renamed.succeeded, renamed.failure
            moved = await ordered(bench, compose_stand, 3, holds.spec, replace(lacks.spec, name="front"))
            assert moved.succeeded, moved.failure
            seen = await compose_runtime.observe(compose_stand.deployment_id)
            assert [(each.component, each.is_running) for each in seen] == [("front", True), ("web", True)]
    finally:
        await compose_runtime.remove(compose_stand.deployment_id, "front", remove_images=False)


async def test_another_profile_of_the_app_takes_over_the_port_and_one_that_cannot_be_had_touches_nothing(
    bench: Bench, compose_stand: ComposeStand, compose_runtime: Runtime
) -> None:
    """From a compose file to a single image and back, both with a component `web` that publishes the same port."""
    stand, port = compose_stand, free_port()
    images = ImageStand(stand.kind, stand.folder, stand.registry_host, stand.options, image=stand.image)
    composed = (await stand.services("profile", publishing(port))).spec
    single = images.one(ports=[f"127.0.0.1:{port}:80"]).spec
    missing = (await images.missing()).spec

    async def running() -> set[str]:
        (seen,) = await compose_runtime.observe(stand.deployment_id)
        assert seen.is_running
        return {each.id for each in seen.containers}

    async with connected(bench, compose_runtime):
        assert (await ordered(bench, stand, 1, composed)).succeeded
        before = await running()
        refused = await ordered(bench, stand, 2, missing)
        assert refused.failure is not None and refused.failure.code == Code.IMAGE_PULL_FAILED
        assert (refused.release_runs, await running()) == (True, before)
        for generation, spec in ((3, single), (4, composed)):
            changed = await ordered(bench, stand, generation, spec)
            assert changed.succeeded, changed.failure
            after = await running()
            assert after.isdisjoint(before), "one release runs, and it is the new one"
            before = after


async def test_what_an_engine_has_is_told_by_its_owner_and_removed_as_his(
    compose_stand: ComposeStand, compose_runtime: Runtime
) -> None:
    workload = await compose_stand.services("owned", publishing(None))
    await compose_runtime.prepare(workload, lambda *_: None)
    await compose_runtime.apply(workload, lambda *_: None)
    assert isinstance(compose_runtime, SharedEngine)
    (mine,) = [each for each in await compose_runtime.owned() if each.deployment_id == workload.deployment_id]
    assert mine.component == "web"
    await compose_runtime.remove_owned(replace(mine, node_id=NodeId("somebody-else")))
    assert await compose_runtime.observe(workload.deployment_id), "another node's is another container"
    await compose_runtime.remove_owned(mine)
    assert not await compose_runtime.observe(workload.deployment_id)
