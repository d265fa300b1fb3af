"""The stage for end-to-end tests: a real registry with the example apps, and machines to run Homeport on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images import build_images
from tests.support.podman import new_node_prefix, remove_leftovers
from tests.support.ports import free_port
from tests.support.processes import Machine, machine
from tests.support.registry import RunningRegistry, running_registry
from tests.support.stage import publish_apps, shared_stage


@pytest.fixture(scope="session")
def registry() -> Iterator[RunningRegistry]:
    """With the images of the examples in it."""
    stage = shared_stage()
    if stage is not None:
        yield stage.registry
        return
    with running_registry() as running:
        build_images(running.host)
        yield running


@pytest.fixture(scope="session")
def apps(registry: RunningRegistry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example apps and those of the tests, pointed at the registry; their components are in it."""
    stage = shared_stage()
    return publish_apps(registry, tmp_path_factory.mktemp("apps")) if stage is None else Path(stage.apps)


@pytest.fixture
def node_prefix() -> Iterator[str]:
    """Begins the id of every node of a test, so that what a failed test leaves behind can be found."""
    prefix = new_node_prefix("e2e")
    yield prefix
    remove_leftovers(prefix)


@pytest.fixture
def host(tmp_path: Path, node_prefix: str) -> Iterator[Machine]:
    """Ended before what its nodes left behind is removed: a node that runs would start it again."""
    with machine(tmp_path / "host") as started:
        yield started


@pytest.fixture
def port() -> int:
    """For a workload to publish on."""
    return free_port()
