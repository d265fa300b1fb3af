"""What runs jobs: real containers on Podman and Docker, native processes, and the fake."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from homeport.adapters.jobs.null import NullJobs
from homeport.adapters.jobs.processes import ProcessJobs
from homeport.adapters.runtime.detect import open_runtime
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.system import SystemClock
from homeport.ports import JobRunner, RunsJobs
from homeport.vocabulary import NodeId
from tests.conformance.jobs.stand import JobStand
from tests.conformance.runtime.conftest import docker_socket, image, podman_socket, registry_host
from tests.support.engines import engine_environment
from tests.support.fake_registry import FakeRegistry
from tests.support.podman import new_node_prefix

__all__ = ["docker_socket", "image", "podman_socket", "registry_host"]


@pytest.fixture(params=["null", "process", "podman", "docker"])
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobStand]:
    name = str(request.param)
    if name in ("null", "process"):
        yield JobStand(name, lambda: _small(name, tmp_path))
        return
    options = EngineOptions(environment=engine_environment(), socket=request.getfixturevalue(f"{name}_socket"))
    node_id = NodeId(new_node_prefix("jobs"))
    runtime = await open_runtime(name, tmp_path, FakeRegistry(), node_id, options=options)
    assert isinstance(runtime, RunsJobs)
    found = JobStand(name, runtime.job_runner, image=request.getfixturevalue("image"))
    try:
        yield found
    finally:
        runner = found.runner()
        for run_id in await runner.runs():
            await runner.remove(run_id)
        await runtime.close()


def _small(name: str, folder: Path) -> JobRunner:
    if name == "null":
        return NullJobs(folder, SystemClock())
    return ProcessJobs(folder / "jobs", {"PATH": "/usr/bin:/bin"})


@pytest.fixture
def real(stand: JobStand) -> Iterator[JobStand]:
    """One that really runs something."""
    if stand.name == "null":
        pytest.skip("the fake runs nothing")
    yield stand
