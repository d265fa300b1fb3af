"""A central with its registry, a site and four nodes, each on a host of its own and nodes with a Podman of their own;
between site and registry a line that can be counted and cut. The registry has one image, of random bytes."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.hosts import OwnPodman
from tests.support.images import podman_environment
from tests.support.namespaces import Host, lan
from tests.support.processes import Machine, Process, machine
from tests.support.relay import Relay

NODES = ("n1", "n2", "n3", "n4")
IMAGE_BYTES = 24 * 2**20
REGISTRY_PORT = 5000


@dataclass
class CachedSite:
    hosts: dict[str, Host]
    machines: dict[str, Machine]
    podmans: dict[str, OwnPodman]
    wan: Relay
    """Between the site and central's registry."""
    folder: Path
    token: str = ""

    @property
    def central(self) -> Machine:
        return self.machines["central"]

    @property
    def image(self) -> str:
        return f"{self.hosts['wan'].address}:{REGISTRY_PORT}/demo/big:1.0"

    def admin(self, name: str) -> str:
        data = self.folder / f"data-{name}"
        data.mkdir()
        place = str(data / ("central.db" if name == "central" else "site.db"))
        made = self.machines[name].json("tokens", "create", "--name", "root", "--role", "admin", "--store", place)
        return str(made["token"])

    def start(self, name: str, *arguments: str) -> Process:
        return self.machines[name].start(name, *arguments, "--data", str(self.folder / f"data-{name}"))

    def start_central(self) -> None:
        address, self.token = self.hosts["central"].address, self.admin("central")
        started = self.start(
            *("central", "central", "--http", f"{address}:8443", "--host", self.hosts["wan"].address),
            *("--host", address, "--registry", f"0.0.0.0:{REGISTRY_PORT}"),
        )
        started.wait_up()
        found = re.search(r"--pin (sha256:[0-9a-f]{64})", started.log.read_text())
        assert found, started.log.read_text()
        self.central.url = f"https://{address}:8443"
        self.central.homeport("login", self.central.url, "--token", self.token, "--pin", found[1])

    def join_all(self) -> None:
        self.admin("north")
        address = self.hosts["north"].address
        site = shlex.split(self.central.homeport("sites", "join-command", "north"))
        self.start("north", *site[1:], "--http", f"{address}:8443", "--grpc", f"{address}:50052").wait_up()
        self.central.wait_for(lambda: self.central.command("nodes", "join-command", "north").returncode == 0)
        for name in NODES:
            node = shlex.split(self.central.homeport("nodes", "join-command", "north"))
            self.start(name, *node[1:], "--id", name, "--runtime", "podman", "--http", "127.0.0.1:8082")
        self.central.wait_for(lambda: len(self.central.json("nodes", "list")["nodes"]) == len(NODES))

    def push_image(self) -> None:
        """Built on this machine and pushed from the hosts' network; no copy is kept."""
        folder = self.folder / "image"
        folder.mkdir()
        shutil.copy("/bin/busybox", folder / "busybox")
        (folder / "weights").write_bytes(os.urandom(IMAGE_BYTES))
        (folder / "Containerfile").write_text("FROM scratch\nCOPY busybox /bin/busybox\nCOPY weights /weights\n")
        login = ("--tls-verify=false", "--creds", f"root:{self.token}")
        try:
            self.podman("build", "--layers=false", "--force-rm", "-t", self.image, str(folder))
            self.podman("push", *login, self.image)
        finally:
            self.podman("rmi", "--force", self.image)

    def deploy(self) -> None:
        """The image to all nodes, until it runs there."""
        app = self.folder / "big"
        app.mkdir()
        runs = "command: [/bin/busybox, sleep, '3600'], stop_signal: SIGKILL"
        (app / "compose.yaml").write_text(f"services: {{big: {{image: '{self.image}', {runs}}}}}\n")
        assert "INSTALLED" in self.central.homeport("deploy", str(app), "--timeout", "120")

    def stored_bytes(self) -> int:
        """What central's registry has."""
        blobs = (self.folder / "data-central" / "registry" / "blobs").rglob("*")
        return sum(path.stat().st_size for path in blobs if path.is_file())

    def podman(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self.hosts["central"].prefix, "podman", *arguments],
            env=podman_environment(), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"podman {arguments[0]}: {done.stderr}"

    def images(self, node: str) -> set[str]:
        listed: list[dict[str, Any]] = json.loads(self.podmans[node].run("images", "--format", "json") or "[]")
        return {name for each in listed for name in each.get("Names") or ()}


@contextlib.contextmanager
def cached_site(folder: Path) -> Iterator[CachedSite]:
    with ExitStack() as stack:
        hosts = stack.enter_context(lan(["central", "wan", "north", *NODES]))
        podmans = {name: OwnPodman(hosts[name]) for name in NODES}
        for podman in podmans.values():
            stack.callback(podman.close)
        machines = {name: stack.enter_context(machine(folder / name)) for name in hosts}
        for name, each in machines.items():
            each.prefix = hosts[name].prefix
        for name in NODES:
            machines[name].environment = podmans[name].environment
        target = (hosts["central"].address, REGISTRY_PORT)
        wan = Relay(hosts["wan"], REGISTRY_PORT, target, address=hosts["wan"].address)
        wan.start()
        stack.callback(wan.stop)
        fleet = CachedSite(hosts, machines, podmans, wan, folder)
        fleet.start_central()
        fleet.push_image()
        fleet.join_all()
        yield fleet
