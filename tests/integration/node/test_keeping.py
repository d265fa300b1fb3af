"""What was installed stays installed, with or without a site."""

import logging

import anyio
import pytest

from homeport.adapters.runtime.fake import NullRuntime
from homeport.core.model.order import Progress
from homeport.errors import EngineUnavailable
from homeport.node.journal.journal import Journal
from homeport.vocabulary import Code
from tests.integration.node.conftest import Bench
from tests.support.builders import deployment_id
from tests.support.fickle_runtime import FickleRuntime
from tests.support.orders import a_component, to_apply
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_a_component_that_disappears_is_restored_and_said_to_be(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1, a_component("db"), a_component("web")))
        (db, _) = await runtime.observe(deployment_id())
        await runtime.remove(deployment_id(), "web", remove_images=False)
        await bench.site.until(lambda: "restored" in bench.site.steps(1))
        told = next(each for each in bench.site.progress if each.step == "restored")
        assert (told.component, told.message) == ("web", "web was missing; started again")
        seen = await runtime.observe(deployment_id())
        assert [each.component for each in seen] == ["db", "web"]
        assert seen[0] == db
        assert len(bench.site.results) == 1


async def test_drift_while_the_site_was_gone_is_told_after_a_restart_of_the_node(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "homeport.node")
    async with bench.connected():
        await bench.site.order(to_apply(1))
    async with bench.node() as runtime:
        await runtime.remove(deployment_id(), "web", remove_images=False)
        await eventually(lambda: "component restored" in caplog.messages)
    async with bench.connected():
        await bench.site.until(lambda: "restored" in bench.site.steps(1))
        assert bench.site.steps(1)[-2:] == ["drifted", "restored"]
        await bench.site.order(to_apply(2))
    journal = Journal(bench.settings.data / "journal.sqlite3")
    assert not [news for news in journal.outbox.values() if isinstance(news, Progress)], "told once"
    journal.close()


async def test_a_component_that_keeps_disappearing_is_restored_less_and_less_often(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1))
        for _ in range(15):
            await runtime.remove(deployment_id(), "web", remove_images=False)
            await anyio.sleep(0.1)
        assert 1 <= bench.site.steps(1).count("restored") <= 2


async def test_after_a_power_cut_the_last_good_release_starts_without_a_site(bench: Bench) -> None:
    async with bench.connected():
        await bench.site.order(to_apply(1))
    (bench.settings.data / "null.jsonl").unlink()
    async with bench.node() as runtime:
        with anyio.fail_after(60):
            while not await runtime.observe(deployment_id()):  # noqa: ASYNC110
                await anyio.sleep(0.02)


async def test_after_a_power_cut_during_an_update_the_last_good_release_comes_first(bench: Bench) -> None:
    async with bench.connected():
        await bench.site.order(to_apply(1))
        await bench.site.send(to_apply(2, a_component(revision="2.0.0", seconds=30)))
        await bench.site.until(lambda: "creating" in bench.site.steps(2))
    (bench.settings.data / "null.jsonl").unlink()
    async with bench.node() as runtime:
        with anyio.fail_after(60):
            while not await runtime.observe(deployment_id()):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        (seen,) = await runtime.observe(deployment_id())
        assert seen.digest == a_component().digest


async def test_a_release_that_could_not_be_replaced_is_still_kept(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1))
        await bench.site.order(to_apply(2, a_component(revision="2.0.0", fail=Code.IMAGE_PULL_FAILED)))
        await runtime.remove(deployment_id(), "web", remove_images=False)
        await bench.site.until(lambda: "restored" in bench.site.steps(2))
        (seen,) = await runtime.observe(deployment_id())
        assert seen.digest == a_component().digest


async def test_a_restart_of_the_node_restarts_no_container(bench: Bench) -> None:
    async with bench.connected() as runtime:
        await bench.site.order(to_apply(1))
        before = await runtime.observe(deployment_id())
    again = FickleRuntime(bench.settings.data)
    async with bench.connected(again):
        await bench.site.until(lambda: again.looks > 3)
        assert await again.observe(deployment_id()) == before


class LateEngine(NullRuntime):
    """Answers only when the test lets it."""

    answers = False

    async def start(self) -> None:
        if not self.answers:
            raise EngineUnavailable("The engine is not up.", hint="Wait for it.")
        await super().start()


async def test_a_node_without_an_engine_connects_and_registers_anew_when_it_comes(bench: Bench) -> None:
    runtime = LateEngine(bench.settings.data)
    async with bench.connected(runtime):
        capabilities = bench.site.hellos[0].info.capabilities
        assert (capabilities.engine, capabilities.profile_types) == ("", ())
        runtime.answers = True
        await bench.site.until(lambda: len(bench.site.hellos) == 2)
        assert bench.site.hellos[1].info.capabilities.engine == "null"
        assert (await bench.site.order(to_apply(1))).succeeded
