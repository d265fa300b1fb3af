"""Two sites and three nodes on hosts of their own, with mutual TLS and short-lived certificates, while the authority
is rotated and central is cut off for longer than a certificate lives. Not one workload is restarted."""

import contextlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.git import bare_repository
from tests.support.namespaces import Host, lan
from tests.support.processes import Machine, Process, machine
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making network namespaces needs root")

APPS = Path(__file__).parent / "apps"
LIFETIME = 10
"""Seconds that a certificate lives here."""
NODES = {"n1": "north", "n2": "north", "s1": "south"}


@dataclass
class Fleet:
    hosts: dict[str, Host]
    machines: dict[str, Machine]
    roles: dict[str, Process]
    folder: Path

    @property
    def central(self) -> Machine:
        return self.machines["central"]

    def start(self, name: str, *arguments: str) -> Process:
        process = self.machines[name].start(name, *arguments, "--data", str(self.folder / f"data-{name}"))
        process.wait_up()
        self.roles[name] = process
        return process

    def token(self, name: str) -> str:
        """An administrator's key, made on the machine itself before anything listens there."""
        data = self.folder / f"data-{name}"
        data.mkdir(exist_ok=True)
        place = str(data / ("central.db" if name == "central" else "site.db"))
        made = self.machines[name].json("tokens", "create", "--name", "root", "--role", "admin", "--store", place)
        return str(made["token"])

    def workloads(self) -> dict[str, set[int]]:
        """The processes that each node has started, by their ids."""
        found: dict[str, set[int]] = {node: set() for node in NODES}
        for process in psutil.process_iter(["cmdline", "environ"]):
            if process.info["cmdline"] == ["sleep", "3600"]:
                node = _namespace_of(process.pid, self.hosts)
                if node is not None:
                    found[node].add(process.pid)
        return found

    def live(self) -> int:
        done = self.central.command("nodes", "list", "-o", "json")
        if done.returncode:
            return 0
        return sum(node["liveness"] == "live" for node in json.loads(done.stdout)["nodes"])

    def reachable(self) -> list[str]:
        sites = self.central.json("sites", "list")["sites"]
        return sorted(site["name"] for site in sites if site["reachable"])


def _namespace_of(pid: int, hosts: dict[str, Host]) -> str | None:
    try:
        inode = Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None
    for name, host in hosts.items():
        if Path(f"/run/netns/{host.namespace}").stat().st_ino == inode:
            return name
    return None


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    names = ["central", "north", "south", *NODES]
    with lan(names) as hosts, ExitStack() as stack:
        stack.callback(_end_workloads, tmp_path)  # last of all: a node that still runs would start them again
        machines = {name: stack.enter_context(machine(tmp_path / name)) for name in names}
        for name, host in machines.items():
            host.prefix = hosts[name].prefix
        joined = Fleet(hosts, machines, {}, tmp_path)
        _start_central(joined, bare_repository(tmp_path / "deployments.git"))
        for site in ("north", "south"):
            _join_site(joined, site)
        for node, site in NODES.items():
            _join_node(joined, node, site)
        machines["central"].wait_for(lambda: joined.live() == len(NODES))
        yield joined


def _end_workloads(folder: Path) -> None:
    """Nodes leave what they started running, as they should; the keepers take their programs with them."""
    keepers = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any("program_keeper.py" in word for word in process.info["cmdline"] or ())
        and str(folder) in str(process.info["cmdline"])
    ]
    for keeper in keepers:
        for process in (*keeper.children(recursive=True), keeper):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _start_central(fleet: Fleet, repository: Path) -> None:
    address = fleet.hosts["central"].address
    token = fleet.token("central")
    central = fleet.start(
        "central", "central", "--git", str(repository), "--http", f"{address}:8443",
        "--svid-lifetime", str(LIFETIME), "--bundle-refresh", "1",
    )  # fmt: skip
    pin = fleet.central.wait_for(lambda: re.search(r"--pin (sha256:[0-9a-f]{64})", central.log.read_text()))[1]
    fleet.central.url = f"https://{address}:8443"
    fleet.central.homeport("login", fleet.central.url, "--token", token, "--pin", pin)


def _join_site(fleet: Fleet, site: str) -> None:
    address = fleet.hosts[site].address
    fleet.token(site)
    printed = shlex.split(fleet.central.homeport("sites", "join-command", site))
    fleet.start(
        site,
        *printed[1:],
        "--http",
        f"{address}:8443",
        "--grpc",
        f"{address}:50052",
        "--svid-lifetime",
        str(LIFETIME),
    )


def _join_node(fleet: Fleet, node: str, site: str) -> None:
    fleet.central.wait_for(lambda: fleet.central.command("nodes", "join-command", site).returncode == 0)
    printed = shlex.split(fleet.central.homeport("nodes", "join-command", site))
    fleet.start(
        node, *printed[1:], "--id", node, "--runtime", "process", "--label", "programs=native",
        "--http", "127.0.0.1:8082",
    )  # fmt: skip


def _finish_rotation(central: Machine) -> None:
    """As a person would: try until nobody holds a certificate of the old root any more."""
    wait_for(lambda: central.command("identity", "rotate", "finish").returncode == 0)


def test_rotation_and_a_long_cut_restart_nothing(fleet: Fleet) -> None:
    central = fleet.central
    central.homeport("apps", "add", str(APPS))
    central.homeport("deploy", "steady", "--site", "north", "--site", "south", "--wait")
    before = fleet.workloads()
    assert {node: len(pids) for node, pids in before.items()} == dict.fromkeys(NODES, 1)

    central.homeport("identity", "rotate", "begin")
    time.sleep(2)
    fleet.hosts["central"].cut()
    time.sleep(1.5 * LIFETIME)
    fleet.hosts["central"].heal()
    central.wait_for(lambda: fleet.live() == len(NODES) and len(fleet.reachable()) == 2, seconds=45)
    assert fleet.workloads() == before, "a cut restarts nothing"

    central.homeport("identity", "rotate", "switch")
    time.sleep(1.2 * LIFETIME)
    _finish_rotation(central)
    time.sleep(0.6 * LIFETIME)
    central.wait_for(lambda: fleet.live() == len(NODES) and len(fleet.reachable()) == 2, seconds=30)
    assert fleet.workloads() == before, "nor does a new authority"
    states = {item["site"]: item["state"] for item in central.json("deployments", "list")["deployments"]}
    assert states == {"north": "INSTALLED", "south": "INSTALLED"}

    central.homeport("deployments", "delete", "steady@south", "--wait")
    assert fleet.workloads()["s1"] == set(), "and orders still get through"
