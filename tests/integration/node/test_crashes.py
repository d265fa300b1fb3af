"""`kill -9` at any point: nothing that was accepted is forgotten, nothing that was done is done twice."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from tests.integration.node.conftest import Bench
from tests.support.builders import deployment_id
from tests.support.orders import a_component, to_apply, to_remove

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def node_process(bench: Bench) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "tests.support.node_process", str(bench.settings.data), str(bench.port)]
    with (bench.settings.data.parent / "node.log").open("ab") as log:
        process = await anyio.open_process(command, cwd=ROOT, stderr=log)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


def starts(bench: Bench) -> int:
    """How often a component was started since the null runtime's journal was last rewritten."""
    path = bench.settings.data / "runtime" / "null.jsonl"
    return sum("null-" in line for line in path.read_text().splitlines())


def running(bench: Bench) -> set[str]:
    """The components that the null runtime runs: the last line about each decides."""
    lines = (bench.settings.data / "runtime" / "null.jsonl").read_text().splitlines()
    latest = {component: held for _, component, held in map(json.loads, lines)}
    return {component for component, held in latest.items() if held is not None}


async def test_an_order_that_was_interrupted_is_resumed(bench: Bench) -> None:
    async with bench.site.serving(bench.port):
        async with node_process(bench) as process:
            await bench.site.until(lambda: bench.site.hellos)
            await bench.site.send(to_apply(1, a_component(seconds=0.5)))
            await bench.site.until(lambda: "creating" in bench.site.steps(1))
            process.kill()
            await process.wait()
        assert not bench.site.results
        async with node_process(bench):
            await bench.site.until(lambda: bench.site.results)
            (held,) = bench.site.hellos[-1].held
            assert (held.generation, held.done) == (1, False)
            assert bench.site.results[0].succeeded
            assert starts(bench) == 1


async def test_a_result_survives_until_it_is_acknowledged(bench: Bench) -> None:
    bench.site.acknowledges = False
    async with bench.site.serving(bench.port):
        async with node_process(bench) as process:
            await bench.site.until(lambda: bench.site.hellos)
            await bench.site.order(to_apply(1))
            process.kill()
            await process.wait()
        bench.site.acknowledges = True
        async with node_process(bench) as process:
            await bench.site.until(lambda: len(bench.site.results) == 2)
            assert bench.site.results[0] == bench.site.results[1]
            assert starts(bench) == 1


async def test_a_removal_that_was_interrupted_is_finished(bench: Bench) -> None:
    async with bench.site.serving(bench.port):
        async with node_process(bench) as process:
            await bench.site.until(lambda: bench.site.hellos)
            await bench.site.order(to_apply(1, *(a_component(f"part-{number}") for number in range(20))))
            await bench.site.send(to_remove(2))
            await bench.site.until(lambda: bench.site.steps(2))
            process.kill()
            await process.wait()
        async with node_process(bench):
            await bench.site.until(lambda: bench.site.results[-1].generation == 2)
            assert bench.site.results[-1].deleted
            assert not running(bench)


@pytest.mark.parametrize("milliseconds", [0, 3, 8, 20])
async def test_a_kill_at_any_moment_ends_with_the_newest_release_once(bench: Bench, milliseconds: int) -> None:
    async with bench.site.serving(bench.port):
        async with node_process(bench) as process:
            await bench.site.until(lambda: bench.site.hellos)
            await bench.site.order(to_apply(1))
            await bench.site.send(to_apply(2, a_component(revision="2.0.0")))
            await anyio.sleep(milliseconds / 1000)
            process.kill()
            await process.wait()
        async with node_process(bench):
            await bench.site.until(lambda: len(bench.site.hellos) == 2)
            # As a site does that has heard no result: an order that never arrived is repeated, others are harmless.
            await bench.site.send(to_apply(2, a_component(revision="2.0.0")))
            await bench.site.until(lambda: bench.site.results[-1].generation == 2)
            text = (bench.settings.data / "runtime" / "null.jsonl").read_text()
            assert text.count(a_component(revision="2.0.0").digest) == 1
            assert deployment_id() in text


async def test_sigterm_stops_cleanly_and_leaves_workloads(bench: Bench) -> None:
    async with bench.site.serving(bench.port), node_process(bench) as process:
        await bench.site.until(lambda: bench.site.hellos)
        await bench.site.order(to_apply(1))
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(60):
            assert await process.wait() == 0
        assert starts(bench) == 1
        assert not bench.site.gone


async def test_an_order_that_kills_the_node_is_given_up_after_three_times(bench: Bench) -> None:
    async with bench.site.serving(bench.port):
        for number in range(3):
            async with node_process(bench) as process:
                await bench.site.until(lambda: len(bench.site.hellos) == number + 1)  # noqa: B023
                if number == 0:
                    await bench.site.send(to_apply(1, a_component(seconds=30, timeout_seconds=60)))
                await bench.site.until(lambda: bench.site.steps(1).count("creating") == number + 1)  # noqa: B023
                process.kill()
                await process.wait()
        async with node_process(bench):
            await bench.site.until(lambda: bench.site.results)
            (result,) = bench.site.results
            assert result.failure is not None
            assert result.failure.code == "NODE_CRASHED"
            assert "killed 3 times" in result.failure.message
            assert (await bench.site.order(to_apply(2))).succeeded, "it works on"


async def test_a_node_that_is_told_to_stop_has_not_crashed(bench: Bench) -> None:
    async with bench.site.serving(bench.port):
        for number in range(4):
            async with node_process(bench) as process:
                await bench.site.until(lambda: len(bench.site.hellos) == number + 1)  # noqa: B023
                if number == 0:
                    await bench.site.send(to_apply(1, a_component(seconds=30, timeout_seconds=60)))
                await bench.site.until(lambda: bench.site.steps(1).count("creating") == number + 1)  # noqa: B023
                process.send_signal(signal.SIGTERM)
                await process.wait()
        assert not bench.site.results
