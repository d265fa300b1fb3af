"""F3 and F4: central is cut off and comes back; a link that comes and goes. Nothing is restarted, and what happened
meanwhile arrives in order, once."""

import itertools
import time

import pytest

from tests.faults.conftest import IS_LONG
from tests.support.hosts import HostFleet

CUTS_SECONDS = (1, 30, 600) if IS_LONG else (3,)
PROFILES = ((5, 5, 5), (10, 10, 3), (15, 15, 3), (30, 30, 2), (5, 20, 3)) if IS_LONG else ((1, 1, 3),)
"""Seconds up, seconds down, how often."""
DEPLOYMENTS = 20 if IS_LONG else 4


@pytest.mark.parametrize("seconds", CUTS_SECONDS)
def test_a_site_that_was_cut_off_from_central_tells_everything_once(fleet: HostFleet, seconds: int) -> None:
    witness, repaired = fleet.deploy("witness"), fleet.deploy("repaired")
    fleet.settled(witness)
    fleet.settled(repaired)
    kept = fleet.podman.ids(witness)
    late = fleet.deploy("late")
    fleet.wait(lambda: fleet.podman.containers(late), what="the order to be with the node")
    fleet.hosts["central"].cut()
    began = time.monotonic()
    (killed,) = fleet.podman.ids(repaired)
    fleet.podman.run("rm", "--force", "--time", "0", killed)
    fleet.wait(lambda: fleet.podman.ids(repaired), what="the node to repair alone")
    fleet.wait(lambda: fleet.podman.ids(late), what="the order to be carried out")
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))  # the fault is this long
    fleet.hosts["central"].heal()
    fleet.settled(late)
    fleet.await_event(repaired, "started again")
    assert [line["after"] for line in fleet.history(late)] == ["INSTALLING", "INSTALLED"]
    assert [line["after"] for line in fleet.history(repaired)] == ["INSTALLING", "INSTALLED"]
    assert fleet.podman.ids(witness) == kept, "a cut restarts nothing"
    assert len(fleet.podman.ids(repaired)) == 1


@pytest.mark.parametrize(("up", "down", "times"), PROFILES)
def test_a_flapping_link_ends_with_everything_where_it_should_be(
    fleet: HostFleet, up: int, down: int, times: int
) -> None:
    names = itertools.count(1)
    keys = []
    for number in range(times):
        flapping = fleet.hosts["n1" if number % 2 else "north"]
        keys += [fleet.deploy(f"flap-{next(names)}") for _ in range(-(-DEPLOYMENTS // times))]
        time.sleep(up)
        flapping.cut()
        time.sleep(down)
        flapping.heal()
    for key in keys:
        fleet.settled(key, seconds=90)
    fleet.wait(lambda: len(fleet.podman.ids()) == len(keys), what="one container for each")
