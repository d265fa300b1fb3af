"""What a node does with orders, seen from its site over the real protocol."""

import anyio
import pytest

from homeport.adapters.runtime.fake import NullRuntime
from homeport.vocabulary import Code, ProfileType
from tests.integration.node.conftest import Bench
from tests.support.builders import deployment_id
from tests.support.orders import a_component, to_apply, to_remove

pytestmark = pytest.mark.anyio


async def container_ids(runtime: object) -> dict[str, str]:
    assert isinstance(runtime, NullRuntime)
    return {seen.component: seen.containers[0].id for seen in await runtime.observe(deployment_id())}


async def test_an_order_is_accepted_reported_step_by_step_and_acknowledged(bench: Bench) -> None:
    async with bench.connected() as runtime:
        result = await bench.site.order(to_apply(1))
        assert result.succeeded
        assert result.release_runs
        assert bench.site.steps(1) == ["accepted", "pulling", "creating", "starting", "healthy"]
        assert list(await container_ids(runtime)) == ["web"]
    # Acknowledged: nothing is left to say on the next connection.
    known = len(bench.site.news)
    async with bench.connected():
        await anyio.sleep(0.2)
        assert len(bench.site.news) == known
        (held,) = bench.site.hellos[-1].held
        assert (held.generation, held.done) == (1, True)


async def test_repeating_an_order_is_answered_again_and_touches_nothing(bench: Bench) -> None:
    async with bench.connected() as runtime:
        first = await bench.site.order(to_apply(1))
        before = await container_ids(runtime)
        assert await bench.site.order(to_apply(1)) == first
        assert await container_ids(runtime) == before


async def test_an_older_order_is_refused_and_answered_with_the_newer_result(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(5, a_component(revision="2.0.0")))
        before = await container_ids(runtime)
        await bench.site.send(to_apply(4, a_component(revision="1.0.0")))
        await bench.site.until(lambda: len(bench.site.results) == 2)
        assert [each.generation for each in bench.site.results] == [5, 5]
        assert await container_ids(runtime) == before


async def test_a_newer_order_cancels_the_work_on_an_older_one(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.send(to_apply(1, a_component(revision="1.0.0", seconds=30)))
        await bench.site.until(lambda: "creating" in bench.site.steps(1))
        with anyio.fail_after(3):
            result = await bench.site.order(to_apply(2, a_component(revision="2.0.0")))
        assert result.succeeded
        (seen,) = await runtime.observe(deployment_id())
        assert seen.digest == a_component(revision="2.0.0").digest
        assert [each.generation for each in bench.site.results] == [2]


async def test_components_start_in_order_and_those_the_release_lost_are_removed(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1, a_component("db"), a_component("web"), a_component("old")))
        before = await container_ids(runtime)
        await bench.site.order(to_apply(2, a_component("db"), a_component("web", "2.0.0")))
        after = await container_ids(runtime)
        assert set(after) == {"db", "web"}
        assert after["db"] == before["db"]
        assert after["web"] != before["web"]
        created = [each.component for each in bench.site.progress if each.step == "creating"]
        assert created == ["db", "web", "old", "web"]


async def test_a_removal_confirms_with_deleted_and_exit_code_zero(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1, a_component("db"), a_component("web")))
        result = await bench.site.order(to_remove(2))
        assert (result.succeeded, result.deleted, result.exit_code) == (True, True, 0)
        assert not await runtime.observe(deployment_id())
        assert bench.site.steps(2) == ["accepted", "stopping", "removed", "stopping", "removed"]
        assert not (bench.settings.data / "components" / deployment_id()).exists()


async def test_a_removal_of_something_unknown_is_done_at_once(bench: Bench) -> None:
    async with bench.connected():
        result = await bench.site.order(to_remove(1))
        assert (result.succeeded, result.deleted) == (True, True)


async def test_a_failed_removal_says_so_with_a_non_zero_exit_code(bench: Bench) -> None:
    async with bench.connected():
        await bench.site.order(to_apply(1, a_component(fail=Code.REMOVE_FAILED)))
        result = await bench.site.order(to_remove(2))
        assert not result.succeeded
        assert not result.deleted
        assert result.exit_code == 1
        assert result.failure is not None
        assert (result.failure.code, result.failure.source) == (Code.REMOVE_FAILED, "web")


@pytest.mark.parametrize("code", [Code.IMAGE_PULL_FAILED, Code.COMPONENT_FETCH_FAILED, Code.DISK_FULL])
async def test_a_release_that_cannot_be_fetched_leaves_the_previous_one_running(bench: Bench, code: Code) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1))
        before = await container_ids(runtime)
        result = await bench.site.order(to_apply(2, a_component(revision="2.0.0", fail=code)))
        assert result.failure is not None
        assert (result.failure.code, result.failure.source) == (code, "web")
        assert result.release_runs
        assert await container_ids(runtime) == before


async def test_an_unhealthy_release_fails_and_says_that_the_previous_one_is_gone(bench: Bench) -> None:
    async with bench.connected():
        await bench.site.order(to_apply(1))
        result = await bench.site.order(to_apply(2, a_component(revision="2.0.0", unhealthy=True)))
        assert result.failure is not None
        assert result.failure.code == Code.HEALTH_CHECK_FAILED
        assert "3 times" in result.failure.message
        assert not result.release_runs


async def test_a_release_that_does_not_get_healthy_in_time_times_out(bench: Bench) -> None:
    patient = bench.with_settings(health_failures=1000)
    async with patient.connected():
        part = a_component(unhealthy=True, timeout_seconds=0.3)
        result = await patient.site.order(to_apply(1, part))
        assert result.failure is not None
        assert result.failure.code == Code.TIMEOUT
        assert "within 0.3 s" in result.failure.message


async def test_a_component_that_is_not_waited_for_is_only_started(bench: Bench) -> None:
    async with bench.connected():
        result = await bench.site.order(to_apply(1, a_component(wait=False, unhealthy=True)))
        assert result.succeeded


async def test_a_type_that_the_runtime_does_not_run_is_refused_by_code(bench: Bench) -> None:
    runtime = NullRuntime(bench.settings.data)
    runtime.profile_types = (ProfileType.COMPOSE,)
    async with bench.connected(runtime):
        result = await bench.site.order(to_apply(1, a_component(kind=ProfileType.HELM)))
        assert result.failure is not None
        assert result.failure.code == Code.UNSUPPORTED_TYPE
        assert "runs compose" in result.failure.message


async def test_a_component_name_cannot_lead_out_of_the_data_folder(bench: Bench) -> None:
    async with bench.connected():
        result = await bench.site.order(to_apply(1, a_component("../../elsewhere")))
        assert result.failure is not None
        assert result.failure.code == Code.CREATE_FAILED


async def test_a_thousand_orders_at_once_are_all_done_soon(bench: Bench) -> None:
    async with bench.connected():
        with anyio.fail_after(15):
            for number in range(1, 1001):
                await bench.site.send(to_apply(number, key=deployment_id(number)))
            await bench.site.until(lambda: len(bench.site.results) == 1000, seconds=15)
        assert all(each.succeeded for each in bench.site.results)
