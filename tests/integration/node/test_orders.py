"""What a node does with orders, seen from its site over the real protocol."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from homeport.adapters.runtime.fake import NullRuntime
from homeport.vocabulary import Code, DeploymentId, ProfileType, Step
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
        # A node reads one message after the other: what it does next, it does after the acknowledgement.
        await bench.site.order(to_apply(2, key=deployment_id(2)))
    # Acknowledged: nothing of it is left to say on the next connection.
    async with bench.connected():
        await bench.site.until(lambda: len(bench.site.hellos) == 2)
        # What waits goes out first on a new connection: with the next result nothing older is under way.
        await bench.site.order(to_apply(3, key=deployment_id(3)))
        assert [each.generation for each in bench.site.results if each.generation == 1] == [1]
        assert len(bench.site.steps(1)) == 5
        held = {each.deployment_id: each for each in bench.site.hellos[-1].held}[deployment_id()]
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
        with anyio.fail_after(60):
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


async def test_a_failed_component_shows_what_it_wrote_last_without_its_secrets(bench: Bench) -> None:
    async with bench.connected():
        part = replace(
            a_component(unhealthy=True),
            environment={"MOTTO": "bind: Address already in use", "PASSWORD": "secret://db"},
            secrets={"db": 1},
            secret_values={"db": "correct-horse"},
        )
        result = await bench.site.order(to_apply(1, part))
        assert result.failure is not None
        assert "Its last output:" in result.failure.message
        assert "MOTTO=bind: Address already in use" in result.failure.message
        assert "correct-horse" not in result.failure.message


class WithVolumes(NullRuntime):
    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.emptied: list[tuple[str, str]] = []

    async def remove_data(self, deployment_id: DeploymentId, component: str, *, name: str) -> None:
        assert not await self.observe(deployment_id), "nothing may use it any more"
        self.emptied.append((name, component))


async def test_data_is_removed_after_its_components_and_only_when_that_is_asked_for(bench: Bench) -> None:
    runtime = WithVolumes(bench.settings.data)
    async with bench.connected(runtime):
        await bench.site.order(to_apply(1, a_component()))
        assert (await bench.site.order(to_remove(2))).deleted
        assert runtime.emptied == []
        await bench.site.order(to_apply(3, a_component()))
        assert (await bench.site.order(replace(to_remove(4), remove_data_of="shop"))).deleted
        assert runtime.emptied == [("shop", a_component().name)]


async def test_a_component_that_ends_right_after_its_start_shows_what_it_wrote_last(bench: Bench) -> None:
    async with bench.connected():
        part = replace(a_component(fail="EXITED"), environment={"SAID": "unknown flag --nope"})
        result = await bench.site.order(to_apply(1, part))
        assert result.failure is not None and result.failure.code == "EXITED"
        assert result.failure.message.endswith(". Its last output: SAID=unknown flag --nope")


async def test_a_release_that_does_not_get_healthy_in_time_times_out(bench: Bench) -> None:
    async with bench.connected():
        part = a_component(unhealthy=True, retries=1000, timeout_seconds=0.3)
        result = await bench.site.order(to_apply(1, part))
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


async def test_hundreds_of_orders_at_once_are_all_done_soon(bench: Bench) -> None:
    async with bench.connected():
        with anyio.fail_after(60):
            for number in range(1, 401):
                await bench.site.send(to_apply(number, key=deployment_id(number)))
            await bench.site.until(lambda: len(bench.site.results) == 400)
        assert all(each.succeeded for each in bench.site.results)


async def test_waiting_for_others_of_a_busy_node_is_none_of_a_components_own_time(bench: Bench) -> None:
    async with bench.with_settings(parallel=1).connected():
        await bench.site.send(to_apply(1, a_component(seconds=1.0)))
        await bench.site.until(lambda: any(each.step is Step.CREATING for each in bench.site.progress))
        # Both are fetched next, then the slow one is started, and the quick one waits for it.
        await bench.site.send(to_apply(2, a_component(seconds=2.0), key=deployment_id(2)))
        quick = to_apply(3, a_component(wait=False, timeout_seconds=1.0), key=deployment_id(3))
        assert (await bench.site.order(quick)).succeeded


async def test_a_renamed_component_takes_over_the_port_of_the_one_that_goes(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1, a_component("db"), a_component("web", port=8080)))
        db = (await container_ids(runtime))["db"]
        assert (await bench.site.order(to_apply(2, a_component("db"), a_component("front", port=8080)))).succeeded
        assert await container_ids(runtime) == {"db": db, "front": (await container_ids(runtime))["front"]}
        steps = [(each.step.value, each.component) for each in bench.site.progress if each.generation == 2]
        assert steps.index(("removed", "web")) < steps.index(("creating", "front"))


async def test_a_port_moves_between_components_that_stay(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1, a_component("api", port=1), a_component("web", port=8080)))
        moved = to_apply(2, a_component("api", port=8080), a_component("web", port=1))
        assert (await bench.site.order(moved)).succeeded
        assert sorted(await container_ids(runtime)) == ["api", "web"]


async def test_a_port_of_another_deployment_is_not_taken_away(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1, a_component("web", port=8080), key=deployment_id(2)))
        refused = await bench.site.order(to_apply(2, a_component("web", port=8080), a_component("db")))
        assert refused.failure is not None
        assert "port 8080 is already in use" in refused.failure.message
        assert len(await runtime.observe(deployment_id(2))) == 1


async def test_what_a_release_that_failed_has_stopped_is_brought_back_by_the_release_before(bench: Bench) -> None:
    async with bench.connected() as runtime:
        before = to_apply(1, a_component("web", port=8080))
        await bench.site.order(before)
        broken = to_apply(2, a_component("front", port=8080, fail=Code.HEALTH_CHECK_FAILED))
        failed = await bench.site.order(broken)
        assert not failed.succeeded
        assert not failed.release_runs, "its site is told that it has to bring it back"
        assert (await bench.site.order(to_apply(3, a_component("web", port=8080)))).succeeded
        assert list(await container_ids(runtime)) == ["web"]
