"""What was installed is watched: INSTALLED is true now, and not a memory."""

from dataclasses import replace

import pytest

from homeport.adapters.runtime.fake import NullRuntime
from homeport.adapters.runtime.health.probes import run_probe
from homeport.core.model.custom import HttpProbe
from homeport.core.model.health import CheckResult
from homeport.errors import WorkFailed
from homeport.ports import OnProgress, Workload
from homeport.vocabulary import Code, OnUnhealthy
from tests.integration.node.conftest import Bench
from tests.support.builders import deployment_id
from tests.support.fickle_runtime import FickleRuntime
from tests.support.orders import a_component, to_apply
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio


def told(bench: Bench) -> list[tuple[bool | None, str]]:
    return [(each.healthy, each.message) for each in bench.site.progress if each.healthy is not None]


async def test_an_app_that_turns_unhealthy_is_said_to_be_and_restarted(bench: Bench) -> None:
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        await bench.site.order(to_apply(1, a_component("db"), a_component("web")))
        before = await runtime.observe(deployment_id())
        runtime.sick["web"] = "GET /healthz answered 500"
        await bench.site.until(lambda: told(bench))
        assert told(bench)[0] == (False, "web: GET /healthz answered 500")
        await bench.site.until(lambda: "restored" in bench.site.steps(1))
        after = await runtime.observe(deployment_id())
        assert after[0] == before[0], "the healthy one is left alone"
        assert after[1].containers[0].id != before[1].containers[0].id
        assert len(bench.site.results) == 1, "an observation is no result"


async def test_an_address_where_nothing_listens_is_named() -> None:
    port = free_port()
    found = await run_probe(HttpProbe("127.0.0.1", port, "/health"), seconds=5, environment={})
    assert found == CheckResult(False, f"GET /health: 127.0.0.1:{port} does not accept connections")


async def test_with_the_policy_report_nothing_is_restarted(bench: Bench) -> None:
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        await bench.site.order(replace(to_apply(1), on_unhealthy=OnUnhealthy.REPORT))
        before = await runtime.observe(deployment_id())
        runtime.sick["web"] = "it is ill"
        await bench.site.until(lambda: told(bench))
        asked = runtime.asked
        await bench.site.until(lambda: runtime.asked > asked + 3)
        assert await runtime.observe(deployment_id()) == before
        assert "restored" not in bench.site.steps(1)


async def test_an_app_that_is_well_again_is_said_to_be_also_by_a_node_that_was_restarted(bench: Bench) -> None:
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        await bench.site.order(replace(to_apply(1), on_unhealthy=OnUnhealthy.REPORT))
        runtime.sick["web"] = "it is ill"
        await bench.site.until(lambda: told(bench))
    async with bench.connected(FickleRuntime(bench.settings.data)):
        await bench.site.until(lambda: len(bench.site.hellos) == 2)
        (held,) = bench.site.hellos[-1].held
        assert held.unhealthy is not None
        assert held.unhealthy.why == "web: it is ill"
        await bench.site.until(lambda: told(bench)[-1][0])
        assert told(bench)[-1] == (True, "healthy again")


async def test_restarts_that_do_not_help_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeport.node.watch.repair.RESTARTS_MAX", 1)
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        await bench.site.order(to_apply(1))
        runtime.sick["web"] = "it is ill"
        await bench.site.until(lambda: "restored" in bench.site.steps(1))
        asked = runtime.asked
        await bench.site.until(lambda: runtime.asked > asked + 15)
        assert bench.site.steps(1).count("restored") == 1


class Unfetchable(NullRuntime):
    """Its registry is away and its images are gone."""

    is_away = False

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        if self.is_away:
            raise WorkFailed(Code.IMAGE_PULL_FAILED, "the registry does not answer", source=workload.spec.name)
        await super().apply(workload, on_progress)


async def test_a_repair_that_fails_is_reported_and_tried_again(bench: Bench) -> None:
    runtime = Unfetchable(bench.settings.data)
    async with bench.connected(runtime):
        await bench.site.order(to_apply(1))
        runtime.is_away = True
        await runtime.remove(deployment_id(), "web", remove_images=False)
        await bench.site.until(lambda: told(bench))
        assert told(bench)[0] == (
            False,
            "web was missing and could not be started again: the registry does not answer",
        )
        runtime.is_away = False
        await bench.site.until(lambda: "restored" in bench.site.steps(1))
        await bench.site.until(lambda: told(bench)[-1][0])


async def test_a_check_that_hangs_delays_no_other_deployment(bench: Bench) -> None:
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        other = deployment_id(2)
        await bench.site.order(to_apply(1, a_component("slow")))
        await bench.site.order(to_apply(2, a_component("web"), key=other))
        runtime.hangs.add("slow")
        await runtime.remove(other, "web", remove_images=False)
        await bench.site.until(lambda: "restored" in bench.site.steps(2))


async def test_one_deployment_that_cannot_be_looked_at_delays_no_other(bench: Bench) -> None:
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        other = deployment_id(2)
        await bench.site.order(to_apply(1))
        await bench.site.order(to_apply(2, key=other))
        runtime.unlistable.add(deployment_id())
        await runtime.remove(other, "web", remove_images=False)
        await bench.site.until(lambda: "restored" in bench.site.steps(2))


async def test_what_a_check_prints_of_a_secret_is_not_told(bench: Bench) -> None:
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        spec = replace(
            a_component(),
            environment={"TOKEN": "secret://token"},
            secrets={"token": 1},
            secret_values={"token": "hunter22"},
        )
        await bench.site.order(to_apply(1, spec))
        runtime.sick["web"] = "401 for hunter22"
        await bench.site.until(lambda: told(bench))
        await bench.site.until(lambda: "restored" in bench.site.steps(1))
        assert not [each for each in bench.site.progress if "hunter22" in each.message]


async def test_updates_and_repairs_are_no_crash_loop(bench: Bench) -> None:
    """What the node starts itself, however often, is not held against the component."""
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        for generation in range(1, 6):
            await bench.site.order(to_apply(generation, a_component(revision=f"{generation}.0.0")))
            asked = runtime.asked
            await bench.site.until(lambda: runtime.asked > asked)  # noqa: B023
        assert not told(bench)


async def test_a_container_that_its_engine_keeps_restarting_is_unhealthy_and_left_to_its_engine(bench: Bench) -> None:
    runtime = FickleRuntime(bench.settings.data)
    async with bench.connected(runtime):
        await bench.site.order(to_apply(1))
        (before,) = await runtime.observe(deployment_id())
        for _ in range(4):
            runtime.start_again("web")
            looks = runtime.looks
            await bench.site.until(lambda: runtime.looks > looks + 1)  # noqa: B023
        await bench.site.until(lambda: told(bench))
        assert told(bench)[0] == (False, "web keeps restarting")
        (after,) = await runtime.observe(deployment_id())
        assert after.containers[0].id == before.containers[0].id
