"""F5: bad lines between a node and its site: lost packets, one way only, slow, far away. Updates arrive, and a node
that is only hard to hear is not taken for dead."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.conftest import IS_LONG
from tests.support.hosts import HostFleet, dropping
from tests.support.namespaces import Host

LOSS = "-i eth0 -m statistic --mode random --probability {share} -j DROP"


@contextlib.contextmanager
def limited(host: Host, rate: str) -> Iterator[None]:
    tc = [*host.prefix, "tc", "qdisc"]
    subprocess.run(
        [*tc, "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "4kb", "latency", "1s"], check=True
    )
    try:
        yield
    finally:
        subprocess.run([*tc, "del", "dev", "eth0", "root"], check=False)


@contextlib.contextmanager
def watching_liveness(fleet: HostFleet) -> Iterator[set[str]]:
    """Everything that central says of n1 meanwhile, from the beginning on."""
    seen: set[str] = set()
    ending = threading.Event()

    def look() -> None:
        seen.update(each["liveness"] for each in fleet.ask("GET", "/nodes")["nodes"] if each["id"] == "n1")

    def watch() -> None:
        while not ending.is_set():
            with contextlib.suppress(OSError):
                look()
            ending.wait(0.3)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3] if IS_LONG else [0.05])
def test_an_update_arrives_through_a_line_that_loses_packets(fleet: HostFleet, share: float) -> None:
    key = fleet.deploy("lossy", mood="before")
    fleet.settled(key)
    lost = LOSS.format(share=share)
    north, node = fleet.hosts["north"], fleet.hosts["n1"]
    with dropping(node, f"INPUT {lost}"), dropping(north, f"INPUT {lost}"), watching_liveness(fleet) as seen:
        for number in range(10 if IS_LONG else 2):
            fleet.deploy("lossy", mood=f"after-{number}")
            fleet.settled(key, seconds=120)
    if share <= 0.05:
        assert seen == {"live"}, "no false alarm"
    assert len(fleet.podman.containers(key)) == 1


def test_a_node_that_hears_and_is_not_heard_goes_on_and_is_heard_again(fleet: HostFleet) -> None:
    key = fleet.deploy("mute")
    fleet.settled(key)
    before = fleet.podman.ids(key)
    with dropping(fleet.hosts["n1"], "OUTPUT -o eth0 -j DROP"):
        fleet.deploy("mute", mood="wanted")
        if IS_LONG:
            fleet.wait(lambda: fleet.ask("GET", "/nodes")["nodes"][0]["liveness"] == "lost", seconds=60)
        else:
            time.sleep(4)  # the fault is this long
    fleet.wait(lambda: fleet.ask("GET", "/nodes")["nodes"][0]["liveness"] == "live", what="the node to be heard")
    fleet.settled(key, seconds=60)
    fleet.wait(lambda: fleet.podman.ids(key) and fleet.podman.ids(key) != before, what="the update", seconds=60)
    assert len(fleet.podman.containers(key)) == 1


def test_a_far_and_narrow_line_is_slow_and_nothing_else(fleet: HostFleet) -> None:
    """600 ms there and back, at 256 kbit/s."""
    with limited(fleet.hosts["n1"], "256kbit"), watching_liveness(fleet) as seen:
        fleet.link.delay_seconds = fleet.registry.delay_seconds = 0.6
        key = fleet.deploy("far")
        fleet.settled(key, seconds=90)
        fleet.deploy("far", mood="further")
        fleet.settled(key, seconds=90)
    assert seen == {"live"}
