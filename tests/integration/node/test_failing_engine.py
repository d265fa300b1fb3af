"""An engine that dies or refuses in the middle is told by its own code and sentence, whatever was under way."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.compose.runtime import ComposeRuntime
from homeport.adapters.runtime.docker.engine import DockerEngine
from homeport.adapters.runtime.docker_api.engine import ContainerEngine, EngineOptions
from homeport.adapters.runtime.helm.on_podman import HelmOnPodman
from homeport.adapters.runtime.podman.engine import PodmanEngine
from homeport.errors import EngineUnavailable
from homeport.ports import Runtime, Workload
from homeport.vocabulary import Code, NodeId
from tests.integration.node.conftest import Bench
from tests.support.builders import deployment_id
from tests.support.engines import engine_environment
from tests.support.failing_engine import REFUSAL, FailingEngine, failing_engine
from tests.support.health import settle
from tests.support.orders import a_component, to_remove

pytestmark = pytest.mark.anyio

RUNTIMES = ("podman", "docker", "helm")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[FailingEngine]:
    async with failing_engine(tmp_path / "engine.sock", deployment_id()) as engine:
        yield engine


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Runtime:
    return runtime_of(request.param, tmp_path)


def runtime_of(kind: str, folder: Path) -> Runtime:
    options = EngineOptions(environment=engine_environment(), socket=folder / "engine.sock")
    engine: ContainerEngine = DockerEngine(options) if kind == "docker" else PodmanEngine(folder / "data", options)
    runtime = HelmOnPodman if kind == "helm" else ComposeRuntime
    return runtime(engine, OciRegistry(), NodeId("n1"))


async def test_an_engine_that_dies_under_the_checks_is_told_as_it_is(
    engine: FailingEngine, runtime: Runtime, tmp_path: Path
) -> None:
    engine.dies_at = "pod-db"
    with pytest.raises(EngineUnavailable, match="does not answer"):
        await settle(runtime, Workload(deployment_id(), a_component(), tmp_path))


async def test_an_engine_that_refuses_its_listings_is_out_of_order(
    engine: FailingEngine, runtime: Runtime, tmp_path: Path
) -> None:
    engine.refuses = "/json?"
    with pytest.raises(EngineUnavailable, match=REFUSAL):
        await settle(runtime, Workload(deployment_id(), a_component(), tmp_path))
    with pytest.raises(EngineUnavailable, match=REFUSAL):
        await runtime.remove(deployment_id(), "web", remove_images=False)


async def test_an_engine_that_refuses_one_listing_is_asked_again(engine: FailingEngine, tmp_path: Path) -> None:
    """Podman fails to list anything while one container ends: "read /proc/8150/cgroup: no such process"."""
    engine.refuses, engine.refusals = "/json?", 1
    assert await runtime_of("podman", tmp_path).observe(deployment_id())


async def test_a_service_that_cannot_be_started_is_an_engine_that_is_not_there(tmp_path: Path) -> None:
    """As on a full disk, or when there is no memory for one more process."""
    (tmp_path / "file").write_text("in the way of the data folder")
    engine = PodmanEngine(tmp_path / "file" / "data", EngineOptions(environment=engine_environment()))
    with pytest.raises(EngineUnavailable, match="cannot be started: Not a directory"):
        await engine.reach()


async def test_the_service_leaves_nothing_in_the_folder_that_homeport_was_started_in(tmp_path: Path) -> None:
    """Podman 4 writes an empty file `oom` where it runs when a container is killed for its memory."""
    data = tmp_path / "data"
    engine = PodmanEngine(data, EngineOptions(environment=engine_environment()))
    try:
        await engine.reach()
        services = [each for each in psutil.Process().children(recursive=True) if "service" in each.cmdline()]
        assert {each.cwd() for each in services if str(data) in " ".join(each.cmdline())} == {str(data)}
    finally:
        await engine.close()


async def test_a_removal_under_which_the_engine_dies_is_reported_by_its_code(
    engine: FailingEngine, bench: Bench, tmp_path: Path
) -> None:
    async with bench.connected(runtime_of("podman", tmp_path)):
        engine.dies_at = "/stop"
        result = await bench.site.order(to_remove(1))
    assert result.failure is not None
    assert result.failure.code == Code.ENGINE_UNREACHABLE
    assert "does not answer" in result.failure.message


async def test_a_node_outlives_an_engine_that_is_out_of_order(
    engine: FailingEngine, bench: Bench, tmp_path: Path
) -> None:
    async with bench.connected(runtime_of("podman", tmp_path)):
        engine.refuses, engine.refusals = "/", 1000
        result = await bench.site.order(to_remove(1))
        assert result.failure is not None
        assert result.failure.code == Code.ENGINE_UNREACHABLE
        assert REFUSAL in result.failure.message
        left = engine.refusals
        await bench.site.until(lambda: engine.refusals < left - 3)  # The loops look at it several times meanwhile.
        engine.refuses = None
        assert (await bench.site.order(to_remove(2))).succeeded
