"""F10: a release that cannot work. The one before comes back by itself, or was never touched; the reason is told."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.faults.bad_releases import BLOCKED, CRASHING, GOOD, MISSING, PORT_TAKEN, UNHEALTHY
from tests.faults.conftest import IS_LONG
from tests.support.hosts import HostFleet

CODES = {
    CRASHING: {"EXITED", "CREATE_FAILED", "HEALTH_CHECK_FAILED"},
    UNHEALTHY: {"HEALTH_CHECK_FAILED"},
    BLOCKED: {"CREATE_FAILED"},
}
DEADLINE_SECONDS = 25.0
"""The component's 20 s, and five to come back."""


@contextlib.contextmanager
def port_taken(fleet: HostFleet) -> Iterator[None]:
    """By another program on the node's machine."""

    def take() -> socket.socket:
        holder = socket.socket()
        holder.bind(("127.0.0.1", PORT_TAKEN))
        holder.listen()
        return holder

    with fleet.inside["n1"].run(take):
        yield


@pytest.fixture
def key(fleet: HostFleet) -> str:
    key = fleet.deploy("wobbly", GOOD, app="wobbly")
    fleet.settled(key)
    return key


def codes(fleet: HostFleet, key: str) -> set[str]:
    return {line["failure"]["code"] for line in fleet.history(key) if line["failure"]}


def test_a_release_without_its_image_touches_nothing(fleet: HostFleet, key: str) -> None:
    before = fleet.podman.ids(key)
    fleet.deploy("wobbly", MISSING, app="wobbly")
    fleet.wait(lambda: "IMAGE_PULL_FAILED" in codes(fleet, key), what="the reason at central", seconds=60)
    assert fleet.podman.ids(key) == before


@pytest.mark.parametrize("version", [CRASHING, UNHEALTHY, BLOCKED] if IS_LONG else [UNHEALTHY])
def test_a_release_that_does_not_work_is_rolled_back(fleet: HostFleet, key: str, version: str) -> None:
    with port_taken(fleet):
        fleet.deploy("wobbly", version, app="wobbly")
        states = fleet.wait(lambda: _came_back(fleet, key), what="the rollback", seconds=3 * DEADLINE_SECONDS)
    assert states[-1] == "INSTALLED"
    assert codes(fleet, key) & CODES[version], codes(fleet, key)
    (container,) = fleet.podman.containers(key)
    assert container["State"] == "running"
    assert container["Labels"].get("homeport.digest")
    before = fleet.podman.ids(key)
    fleet.roles["north"].kill()
    fleet.again("north")
    fleet.wait(lambda: fleet.ask("GET", "/nodes")["nodes"][0]["liveness"] == "live")
    assert fleet.podman.ids(key) == before, "what was rolled back is not tried again, after a restart neither"
    fleet.deploy("wobbly", GOOD, app="wobbly")
    fleet.settled(key)


def _came_back(fleet: HostFleet, key: str) -> list[str] | None:
    states = [line["after"] for line in fleet.history(key)]
    return states if "ROLLINGBACK" in states and states[-1] == "INSTALLED" else None
