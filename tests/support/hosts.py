"""A fleet whose roles live on hosts of their own: a network namespace and, for a node, a Podman of its own each.

    central   the role, Git over HTTP and the registry
    north     a site
    n1        its node; it reaches site and registry through relays, where a test slows or cuts them

All of it joined over mutual TLS as people do. A role can be killed and started again as it was first started. Nothing
is left when the block ends: processes by id, containers, mounts, namespaces.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.engines import unmount_below
from tests.support.forks import HomeportProcess
from tests.support.git import Person, bare_repository
from tests.support.git_http import GitHttpServer
from tests.support.images import build_images, materialise
from tests.support.inside import Inside
from tests.support.namespaces import Host, lan
from tests.support.ports import free_port
from tests.support.processes import Machine, Process, machine
from tests.support.registry import PROGRAM, running_registry
from tests.support.relay import Relay
from tests.support.waiting import Pauses

CENTRAL_PORT, SITE_PORT, NODES_PORT, GIT_PORT = 8443, 8443, 50052, 8090
MAKING_SECONDS_MAX = 20.0
"""How long an engine may take from a container's network to its first process, or from its last one to the end of the
network, on a busy machine."""
NODES_RELAY_PORT = 50152
"""Where n1 believes its site to be."""
Network = Callable[[Sequence[str]], AbstractContextManager[dict[str, Host]]]
"""How hosts are connected: `lan`, or `natted`."""
UNVERIFIED = ssl._create_unverified_context()
NAME_SERVER = Path("/run/containers/networks/aardvark-dns")
"""Podman 4 knows no other place for it."""
CONTAINERS_CONF = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{folder}/tmp"
lock_type = "file"
[network]
network_config_dir = "{folder}/networks"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=10000:10000"]
"""
STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""


@dataclass(frozen=True, slots=True)
class Stock:
    """A registry's folder with images and components in it, and the apps that name them under `port`."""

    port: int
    storage: Path
    apps: Path


def stocked(apps: tuple[Path, ...], folder: Path, *, more: Callable[[str], None] = lambda host: None) -> Stock:
    """Built once, on this machine's own loopback; hosts then serve the folder under the same port. `more` may push
    what else is needed."""
    storage, shelf = folder / "registry", folder / "apps"
    with running_registry(storage=storage) as running, machine(folder / "packer") as packer:
        build_images(running.host)
        for each in apps:
            materialise(each, running.host, shelf)
        for description in sorted(shelf.rglob("margo.yaml")):
            version = description.parent
            packer.homeport("apps", "push", str(version), f"oci://{running.host}/packages/{version.parent.name}")
        more(running.host)
        return Stock(int(running.host.rpartition(":")[2]), storage, shelf)


class OwnPodman:
    """Podman with its storage, state and networks in a folder of its own, on one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._not_ours = _empty_namespaces()
        self.folder = Path(tempfile.mkdtemp(prefix="hp-podman-"))
        (self.folder / "containers.conf").write_text(CONTAINERS_CONF.format(folder=self.folder))
        (self.folder / "storage.conf").write_text(STORAGE_CONF.format(folder=self.folder))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }

    def run(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self.host.prefix, "podman", *arguments],
            env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def containers(self, deployment: str | None = None) -> list[dict[str, Any]]:
        """Running or not."""
        only = [] if deployment is None else ["--filter", f"label=homeport.deployment={deployment}"]
        return list(json.loads(self.run("ps", "--all", "--format", "json", *only) or "[]"))

    def ids(self, deployment: str | None = None) -> set[str]:
        """Of those that run."""
        return {each["Id"] for each in self.containers(deployment) if each["State"] == "running"}

    def power_cut(self) -> None:
        """Every container ends at once, without a word to anybody, and what was in memory (/run) is gone."""
        for each in self.containers():
            inspected = json.loads(self.run("inspect", each["Id"]))[0]
            for pid in (_number(inspected.get("ConmonPidFile")), inspected["State"]["Pid"]):
                with contextlib.suppress(ProcessLookupError):
                    if pid:
                        os.kill(pid, signal.SIGKILL)
            network = Path(inspected["NetworkSettings"].get("SandboxKey") or "/run/netns/none").name
            subprocess.run(["ip", "netns", "delete", network], capture_output=True, check=False)
        unmount_below(self.folder)
        for name in ("tmp", "run"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def close(self) -> None:
        self.run("rm", "--all", "--force", "--time", "0", check=False)
        networks = [path.stem for path in (self.folder / "networks").glob("*.json")]
        self.run("network", "prune", "--force", check=False)
        self._end_name_server(networks)
        unmount_below(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._remove_forgotten()

    def _end_name_server(self, networks: list[str]) -> None:
        """One server of names serves every Podman of a machine, on the host of whoever needed it first. Containers
        that were killed keep it alive; it must not outlive the host, or nobody on this machine finds a name."""
        process = _number(str(NAME_SERVER / "aardvark.pid"))
        with contextlib.suppress(OSError):
            if process is not None and str(self.folder).encode() in Path(f"/proc/{process}/environ").read_bytes():
                os.kill(process, signal.SIGTERM)
                (NAME_SERVER / "aardvark.pid").unlink(missing_ok=True)
        for name in networks:
            (NAME_SERVER / name).unlink(missing_ok=True)

    def _remove_forgotten(self) -> None:
        """Podman that is killed while it makes a container forgets the namespace it had made for it. Other engines of
        this machine have empty ones too, but only for a moment."""
        found, deadline = _empty_namespaces() - self._not_ours, time.monotonic() + MAKING_SECONDS_MAX
        while found and time.monotonic() < deadline:
            time.sleep(0.5)
            found &= _empty_namespaces()
        for name in found:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _empty_namespaces() -> set[str]:
    """Those that some Podman has made, and in which nothing runs."""
    return {
        path.name
        for path in Path("/run/netns").glob("netns-*")
        if not subprocess.run(["ip", "netns", "pids", path.name], capture_output=True, check=False).stdout
    }


def _number(path: str | None) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(Path(path or "").read_text())
    return None


@dataclass
class HostFleet:
    folder: Path
    hosts: dict[str, Host]
    machines: dict[str, Machine]
    podman: OwnPodman
    git: GitHttpServer
    repository: Path
    stock: Stock
    inside: dict[str, Inside]
    registry: Relay
    """Between n1 and the registry."""
    link: Relay
    """Between n1 and its site."""
    commands: dict[str, tuple[str, ...]] = field(default_factory=dict)
    roles: dict[str, Process] = field(default_factory=dict)
    token: str = ""
    site_token: str = ""
    """For the site's own API."""

    # --- roles ------------------------------------------------------------------------------------------------

    def start(
        self, name: str, *arguments: str, before: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> Process:
        """A role on its host; later `again` starts it the same way. `before` goes before the command alone now."""
        self.commands[name] = (*arguments, "--data", str(self.data(name)))
        process = self.launch(name, before=before, environment=environment)
        process.wait_up()
        return process

    def again(
        self,
        name: str,
        *,
        before: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Process:
        process = self.launch(name, before=before, environment=environment, log=log)
        process.wait_up()
        return process

    def launch(
        self,
        name: str,
        *,
        before: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Process:
        """Starts it and does not wait: it may be meant to die."""
        host = self.machines[name]
        log = log or host.folder / f"{name}-{len(host.running)}.log"
        with log.open("ab") as out:
            popen = HomeportProcess(
                self.commands[name],
                prefix=(*host.prefix, *before),
                env=host.clean_environment() | dict(environment or {}),
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        process = Process(name, popen, log, "", host.folder / "state" / "homeport")
        host.running.append(process)
        self.roles[name] = process
        return process

    def data(self, name: str) -> Path:
        return self.folder / f"data-{name}"

    def make_whole(self) -> None:
        """Heals every link and starts what is not running."""
        self.git.start_if_stopped()
        for host in self.hosts.values():
            host.heal()
        for relay in (self.registry, self.link):
            relay.delay_seconds, relay.cut_after_bytes, relay.cut_every_bytes = 0.0, None, None
        for name, process in self.roles.items():
            if process.popen.poll() is not None:
                self.again(name)

    # --- asking central ---------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, *, seconds: float = 90.0) -> Any:
        """One request to central from its own host; raises OSError where it does not answer."""
        address = self.hosts["central"].address
        request = urllib.request.Request(
            f"https://{address}:{CENTRAL_PORT}/api/v1{path}",
            data=None if body is None else json.dumps(body).encode(), method=method,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )  # fmt: skip

        def call() -> Any:
            with urllib.request.urlopen(request, timeout=seconds, context=UNVERIFIED) as answer:
                return json.loads(answer.read() or b"null")

        return self.inside["central"].run(call)

    def deploy(self, name: str, version: str = "1.0.0", *, app: str = "quiet", **parameters: Any) -> str:
        body = {
            "app_name": app, "version": version, "name": name,
            "sites": [{"site_id": "north"}], "parameters": parameters,
        }  # fmt: skip
        return str(self.ask("POST", "/deployments", body)["deployment_ids"][0])

    def deployment(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/deployments/{key}")
        return found

    def state(self, key: str) -> str | None:
        """None while central does not answer or does not know it."""
        with contextlib.suppress(OSError):
            return str(self.deployment(key)["state"])
        return None

    def history(self, key: str) -> list[dict[str, Any]]:
        return list(self.ask("GET", f"/deployments/{key}/history")["history"])

    def await_event(self, key: str, words: str, *, seconds: float = 90.0) -> dict[str, Any]:
        """Follows a deployment's events from the first until one has these words in its message."""
        request = urllib.request.Request(
            f"https://{self.hosts['central'].address}:{CENTRAL_PORT}/api/v1/deployments/{key}/events",
            headers={"Authorization": f"Bearer {self.token}", "Last-Event-ID": "0"},
        )

        def call() -> dict[str, Any]:
            deadline = time.monotonic() + seconds
            with urllib.request.urlopen(request, timeout=seconds, context=UNVERIFIED) as stream:
                for line in stream:
                    event = json.loads(line[5:]) if line.startswith(b"data:") else {}
                    if words in event.get("message", ""):
                        return dict(event)
                    assert time.monotonic() < deadline, f"no event said {words!r} in {seconds} s"
            raise AssertionError("the stream ended")

        return self.inside["central"].run(call)

    def delete(self, key: str) -> None:
        self.ask("DELETE", f"/deployments/{key}")

    def clear(self) -> None:
        """Deletes everything and waits until it is gone; what is on its way out already needs no word."""
        for each in self.ask("GET", "/deployments")["deployments"]:
            with contextlib.suppress(urllib.error.HTTPError):
                self.delete(each["id"])
        self.wait(
            lambda: not self.ask("GET", "/deployments")["deployments"] and not self.podman.containers(),
            what="everything to be deleted", seconds=60,
        )  # fmt: skip

    def wait(self, look: Callable[[], Any], *, seconds: float = 90.0, what: str = "") -> Any:
        pauses = Pauses()
        seen: Any = None
        while time.monotonic() < pauses.began + seconds:
            with contextlib.suppress(OSError):
                seen = look()
                if seen:
                    return seen
            time.sleep(pauses.next_seconds())
        raise AssertionError(f"waited {seconds} s in vain for {what or 'it'}; last seen {seen!r}\n{self.logs()}")

    def settled(self, key: str, *, seconds: float = 90.0) -> None:
        """Until what is wanted now is installed: an update that nobody has begun yet is INSTALLED too."""
        self.wait(lambda: _is_settled(self.deployment(key)), seconds=seconds, what=f"{key} to be installed")

    def logs(self) -> str:
        """The end of what each role has said, for a failing test."""
        return "\n".join(f"--- {name}\n{process.log.read_text()[-1500:]}" for name, process in self.roles.items())

    def person(self, folder: str = "person") -> Person:
        return Person(str(self.repository), self.folder / folder)


def _is_settled(deployment: Mapping[str, Any]) -> bool:
    running = [instance["running_revision"] for instance in deployment["instances"]]
    return deployment["state"] == "INSTALLED" and set(running) == {deployment["revision"]}


@contextlib.contextmanager
def host_fleet(
    folder: Path,
    stock: Stock,
    *,
    network: Network = lan,
    node_options: tuple[str, ...] = (),
    registry_port: int | None = None,
) -> Iterator[HostFleet]:
    """`registry_port` for the registry of central's own."""
    names = ["central", "north", "n1"]
    with ExitStack() as stack:
        hosts = stack.enter_context(network(names))
        podman = OwnPodman(hosts["n1"])
        stack.callback(podman.close)
        inside = {name: Inside(host) for name, host in hosts.items()}
        for each in inside.values():
            stack.callback(each.close)
        machines = {name: stack.enter_context(machine(folder / name)) for name in names}
        for name, each_machine in machines.items():
            each_machine.prefix = hosts[name].prefix
        machines["n1"].environment = podman.environment
        stack.enter_context(_registry(hosts["central"], stock, inside["central"]))
        repository = bare_repository(folder / "git" / "deployments.git")
        git = GitHttpServer(repository.parent, address=hosts["central"].address, port=GIT_PORT)
        git.inside = inside["central"].run
        git.start()
        stack.callback(git.stop)
        central_address = hosts["central"].address
        relays = (
            Relay(hosts["n1"], stock.port, (central_address, stock.port)),
            Relay(hosts["n1"], NODES_RELAY_PORT, (hosts["north"].address, NODES_PORT)),
        )
        # Content of central's own registry comes through the site.
        content = Relay(hosts["n1"], SITE_PORT, (hosts["north"].address, SITE_PORT))
        for relay in relays if registry_port is None else (*relays, content):
            relay.start()
            stack.callback(relay.stop)
        fleet = HostFleet(folder, hosts, machines, podman, git, repository, stock, inside, *relays)
        own = () if registry_port is None else ("--registry", f"{central_address}:{registry_port}")
        _start_central(fleet, *own)
        _join_site(fleet)
        _join_node(fleet, *node_options)
        yield fleet


@contextlib.contextmanager
def _registry(host: Host, stock: Stock, inside: Inside) -> Iterator[None]:
    configuration = stock.storage.with_name("on-host.yml")
    configuration.write_text(
        "version: 0.1\nlog: {level: error}\nstorage:\n"
        f"  filesystem: {{rootdirectory: {stock.storage}}}\nhttp: {{addr: '0.0.0.0:{stock.port}'}}\n"
    )
    process = subprocess.Popen(
        [*host.prefix, PROGRAM, "serve", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def admin(fleet: HostFleet, name: str) -> str:
    """A key made on the machine itself before anything listens there."""
    fleet.data(name).mkdir(exist_ok=True)
    place = str(fleet.data(name) / ("central.db" if name == "central" else "site.db"))
    made = fleet.machines[name].json("tokens", "create", "--name", "root", "--role", "admin", "--store", place)
    return str(made["token"])


def _start_central(fleet: HostFleet, *options: str) -> None:
    address = fleet.hosts["central"].address
    fleet.token = admin(fleet, "central")
    central = fleet.start(
        "central", "central", "--git", fleet.git.url("deployments.git"), "--http", f"{address}:{CENTRAL_PORT}",
        "--poll", "1", *options,
    )  # fmt: skip
    host = fleet.machines["central"]
    pin = host.wait_for(lambda: re.search(r"--pin (sha256:[0-9a-f]{64})", central.log.read_text()))[1]
    host.url = f"https://{address}:{CENTRAL_PORT}"
    host.homeport("login", host.url, "--token", fleet.token, "--pin", pin)
    if fleet.stock.apps.is_dir():
        host.homeport("apps", "add", str(fleet.stock.apps))


def _join_site(fleet: HostFleet) -> None:
    address = fleet.hosts["north"].address
    fleet.site_token = admin(fleet, "north")
    printed = shlex.split(fleet.machines["central"].homeport("sites", "join-command", "north"))
    fleet.start(
        "north", *printed[1:], "--http", f"{address}:{SITE_PORT}", "--grpc", f"{address}:{NODES_PORT}", "--poll", "1"
    )


def join_arguments(fleet: HostFleet, node: str) -> tuple[str, ...]:
    central = fleet.machines["central"]
    central.wait_for(lambda: central.command("nodes", "join-command", "north").returncode == 0)
    printed = shlex.split(central.homeport("nodes", "join-command", "north"))
    printed[printed.index("--site") + 1] = f"127.0.0.1:{NODES_RELAY_PORT}"
    return (*printed[1:], "--id", node)


def _join_node(fleet: HostFleet, *options: str) -> None:
    own = ("--runtime", "podman", "--http", f"127.0.0.1:{free_port()}", *options)
    fleet.start("n1", *join_arguments(fleet, "n1"), *own)
    fleet.wait(lambda: [each for each in fleet.ask("GET", "/nodes")["nodes"] if each["liveness"] == "live"])


@contextlib.contextmanager
def dropping(host: Host, *rules: str) -> Iterator[None]:
    """Adds iptables rules on that host alone, such as `INPUT -i eth0 -j DROP`, and takes them away again."""
    iptables = [*host.prefix, "iptables"]
    added: list[list[str]] = []
    try:
        for rule in rules:
            chain, *rest = rule.split()
            subprocess.run([*iptables, "-I", chain, *rest], check=True)
            added.append([chain, *rest])
        yield
    finally:
        for words in added:
            subprocess.run([*iptables, "-D", *words], check=False)
