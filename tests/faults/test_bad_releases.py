"""F10: a release that cannot work. The one before comes back by itself, or was never touched; the reason is told."""

import contextlib
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.faults.bad_releases import (
    ABSENT,
    BLOCKED,
    CRASHING,
    ENDING,
    GOOD,
    HOOKED,
    MISSING,
    PORT_TAKEN,
    UNHEALTHY,
)
from tests.faults.conftest import IS_LONG
from tests.support.hosts import HostFleet, join_arguments

CODES = {
    CRASHING: {"EXITED", "CREATE_FAILED", "HEALTH_CHECK_FAILED"},
    UNHEALTHY: {"HEALTH_CHECK_FAILED"},
    BLOCKED: {"CREATE_FAILED"},
    ENDING: {"EXITED"},
    HOOKED: {"EXITED"},
    ABSENT: {"CREATE_FAILED"},
}
DEADLINE = timedelta(seconds=25)
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


def failures(fleet: HostFleet, key: str) -> list[dict[str, Any]]:
    return [line["failure"] for line in fleet.history(key) if line["failure"]]


def codes(fleet: HostFleet, key: str) -> set[str]:
    return {failure["code"] for failure in failures(fleet, key)}


def test_a_release_without_its_image_touches_nothing(fleet: HostFleet, key: str) -> None:
    before = fleet.podman.ids(key)
    fleet.deploy("wobbly", MISSING, app="wobbly")
    fleet.wait(lambda: "IMAGE_PULL_FAILED" in codes(fleet, key), what="the reason at central", seconds=60)
    assert fleet.podman.ids(key) == before


@pytest.mark.parametrize("version", [CRASHING, UNHEALTHY, BLOCKED, ENDING, HOOKED] if IS_LONG else [HOOKED])
def test_a_release_that_does_not_work_is_rolled_back(fleet: HostFleet, key: str, version: str) -> None:
    with port_taken(fleet):
        fleet.deploy("wobbly", version, app="wobbly")
        comes_back_in_time(fleet, key)
    assert codes(fleet, key) & CODES[version], failures(fleet, key)
    (container,) = [each for each in fleet.podman.containers(key) if each["State"] == "running"]
    assert container["Labels"].get("homeport.digest")
    before = fleet.podman.ids(key)
    fleet.roles["north"].kill()
    fleet.again("north")
    fleet.wait(lambda: fleet.ask("GET", "/nodes")["nodes"][0]["liveness"] == "live")
    assert fleet.podman.ids(key) == before, "what was rolled back is not tried again, after a restart neither"
    fleet.deploy("wobbly", GOOD, app="wobbly")
    fleet.settled(key)


def comes_back_in_time(fleet: HostFleet, key: str) -> None:
    """By the times that central has on record."""
    lines = fleet.wait(lambda: _came_back(fleet, key), what="the rollback", seconds=3 * DEADLINE.total_seconds())
    (began,) = [line["at"] for line in lines if line["after"] == "UPDATING"]
    took = datetime.fromisoformat(lines[-1]["at"]) - datetime.fromisoformat(began)
    assert took <= DEADLINE, lines


def _came_back(fleet: HostFleet, key: str) -> list[dict[str, Any]] | None:
    lines = fleet.history(key)
    states = [line["after"] for line in lines]
    return lines if "ROLLINGBACK" in states and states[-1] == "INSTALLED" else None


@pytest.fixture
def native(fleet: HostFleet) -> Iterator[str]:
    """A second node beside n1, for programs of the machine; its name."""
    name = "native"
    fleet.machines[name] = fleet.machines["n1"]
    try:
        fleet.start(
            name, *join_arguments(fleet, name), "--runtime", "process", "--label", "programs=native",
            "--http", "127.0.0.1:22530",
        )  # fmt: skip
        fleet.wait(lambda: any(each["id"] == name for each in fleet.ask("GET", "/nodes")["nodes"]))
        yield name
        fleet.clear()
    finally:
        fleet.roles.pop(name).kill()
        fleet.commands.pop(name)
        fleet.ask("DELETE", f"/nodes/{name}")


@pytest.mark.parametrize("version", [ABSENT, ENDING] if IS_LONG else [ABSENT])
def test_a_program_that_does_not_start_is_rolled_back(fleet: HostFleet, native: str, version: str) -> None:
    key = fleet.deploy("program", GOOD, app="wobbly-program")
    fleet.settled(key)
    fleet.deploy("program", version, app="wobbly-program")
    comes_back_in_time(fleet, key)
    assert codes(fleet, key) & CODES[version], failures(fleet, key)
    if version == ABSENT:
        assert any("no-such-program-anywhere" in failure["message"] for failure in failures(fleet, key))
