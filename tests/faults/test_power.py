"""F2: a node loses power, and its uplink is gone when it comes back."""

from tests.support.hosts import HostFleet


def test_after_a_power_cut_without_uplink_the_last_good_workloads_run_again(fleet: HostFleet) -> None:
    key = fleet.deploy("power")
    fleet.settled(key)
    fleet.roles["n1"].kill()
    fleet.podman.power_cut()
    fleet.hosts["n1"].cut()
    assert fleet.podman.ids(key) == set()
    fleet.again("n1")
    fleet.wait(lambda: len(fleet.podman.ids(key)) == 1, seconds=10, what="the workload without a network")
    (before,) = fleet.podman.ids(key)
    fleet.hosts["n1"].heal()
    fleet.wait(lambda: fleet.ask("GET", "/nodes")["nodes"][0]["liveness"] == "live")
    fleet.settled(key)
    assert fleet.podman.ids(key) == {before}, "reconnection restarts nothing"
