"""F2: a node loses power, and its uplink is gone when it comes back."""

import shlex
import subprocess

from tests.support.hosts import HostFleet
from tests.support.processes import Process


def test_after_a_power_cut_without_uplink_the_last_good_workloads_run_again(fleet: HostFleet) -> None:
    key = fleet.deploy("power")
    fleet.settled(key)
    unit = fleet.machines["n1"].homeport("service", "install", "--system", "--print", *fleet.commands["n1"])
    fleet.roles["n1"].kill()
    fleet.podman.power_cut()
    fleet.hosts["n1"].cut()
    assert fleet.podman.ids(key) == set()
    start_at_boot(fleet, unit)
    fleet.wait(lambda: len(fleet.podman.ids(key)) == 1, seconds=10, what="the workload without a network")
    (before,) = fleet.podman.ids(key)
    fleet.hosts["n1"].heal()
    fleet.wait(lambda: fleet.ask("GET", "/nodes")["nodes"][0]["liveness"] == "live")
    fleet.settled(key)
    assert fleet.podman.ids(key) == {before}, "reconnection restarts nothing"


def start_at_boot(fleet: HostFleet, unit: str) -> None:
    """As systemd would after the reboot: the unit's command, in no environment but the unit's own. Its other lines
    are for systemd alone, and `systemd-analyze verify` accepts them (integration/cli/test_service.py)."""
    lines = [line.partition("=") for line in unit.replace("%%", "%").splitlines()]
    (command,) = [shlex.split(value.replace("$$", "$")) for key, _, value in lines if key == "ExecStart"]
    variables = [shlex.split(value)[0].partition("=") for key, _, value in lines if key == "Environment"]
    host = fleet.machines["n1"]
    log = host.folder / "n1-at-boot.log"
    with log.open("wb") as out:
        popen = subprocess.Popen(
            [*host.prefix, *command],
            env={name: value for name, _, value in variables},
            cwd="/",
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    process = Process("n1", popen, log, "", fleet.data("n1"))
    host.running.append(process)
    fleet.roles["n1"] = process
    process.wait_up()
