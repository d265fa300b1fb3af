"""The three roles as separate processes on one machine: central, sites and their nodes."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from anyio.from_thread import start_blocking_portal

from tests.support.ports import free_port
from tests.support.processes import UNVERIFIED, Machine, Process, pin_of
from tests.support.replicas import RoundRobin, balanced


@dataclass
class Fleet:
    """Remembers each role's own options, so that a test can start the same role again after it was ended."""

    host: Machine
    git_url: str
    commands: dict[str, tuple[str, ...]] = field(default_factory=dict)
    roles: dict[str, Process] = field(default_factory=dict)
    grpc: dict[str, int] = field(default_factory=dict)

    def central(self, *extra: str) -> Process:
        http = free_port()
        process = self._start(
            "central", "central", "--git", self.git_url, "--http", f"127.0.0.1:{http}",
            "--grpc", f"127.0.0.1:{free_port()}", *extra,
        )  # fmt: skip
        self.host.url = process.url
        return process

    def site(self, name: str, *extra: str) -> Process:
        self.grpc[name] = free_port()
        return self._start(
            name, "site", "--name", name, "--central", self.host.url, "--git", self.git_url,
            "--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{self.grpc[name]}", *extra,
        )  # fmt: skip

    def node(self, name: str, site: str, *, runtime: str = "null") -> Process:
        return self._start(
            name, "node", "--site", f"127.0.0.1:{self.grpc[site]}", "--id", name, "--runtime", runtime,
            "--http", f"127.0.0.1:{free_port()}",
        )  # fmt: skip

    def again(self, name: str) -> Process:
        """Starts a role anew, as it was started first."""
        process = self.host.start(name, *self.commands[name], scheme=self._scheme(name))
        process.wait_ready()
        self.roles[name] = process
        return process

    def centrals(self) -> list[Process]:
        return [self.roles["central"]]

    def open(self, path: str, **options: Any) -> Any:
        """Asks central as a person who may do everything."""
        return self.roles["central"].open(path, **options)

    def _scheme(self, name: str) -> str:
        return "http"

    def _start(self, name: str, *command: str) -> Process:
        self.commands[name] = (*command, "--data", str(self._data(name)))
        return self.again(name)

    def _data(self, name: str) -> Path:
        return self.host.folder / f"data-{name}"


@dataclass
class FleetOfTwoCentrals(Fleet):
    """Two centrals on one PostgreSQL, behind a balancer that gives each connection to the next one. People log in
    with a token and machines join by the lines that are printed, as docs/how-to/run-several-centrals.md says."""

    store_url: str = ""
    balancer: RoundRobin = field(default_factory=RoundRobin)
    token: str = ""

    def central(self, *extra: str) -> Process:
        for name in ("central", "central-2"):
            self._start(
                name, "central", "--tls", "--store", self.store_url, "--git", self.git_url, "--host", "127.0.0.1",
                "--keys", str(self.host.folder / "keys"), "--http", f"127.0.0.1:{free_port()}",
                "--grpc", f"127.0.0.1:{free_port()}", "--margo", "off", *extra,
            )  # fmt: skip
        first = self.roles["central"]
        self.balancer.ports[:] = [int(each.url.rpartition(":")[2]) for each in self.centrals()]
        self.host.homeport("login", first.url, "--pin", pin_of(first), "--name", "first", url=first.url)
        self.token = self.host.json("tokens", "create", "--name", "ada", "--role", "admin", url=first.url)["token"]
        self.host.url = f"https://127.0.0.1:{self.balancer.port}"
        self.host.homeport("login", self.host.url, "--pin", pin_of(first), "--token", self.token)
        return first

    def site(self, name: str, *extra: str) -> Process:
        self.grpc[name] = free_port()
        printed = shlex.split(self.host.homeport("sites", "join-command", name))
        process = self._start(
            name, *printed[1:], "--git", self.git_url, "--http", f"127.0.0.1:{free_port()}",
            "--grpc", f"127.0.0.1:{self.grpc[name]}", *extra,
        )  # fmt: skip
        self.host.homeport("login", process.url, "--pin", pin_of(process), "--name", name)
        return process

    def node(self, name: str, site: str, *, runtime: str = "null") -> Process:
        self.host.wait_for(lambda: self.host.command("nodes", "join-command", site).returncode == 0)
        printed = shlex.split(self.host.homeport("nodes", "join-command", site))
        return self._start(
            name, *printed[1:], "--id", name, "--runtime", runtime, "--http", f"127.0.0.1:{free_port()}"
        )

    def centrals(self) -> list[Process]:
        return [self.roles["central"], self.roles["central-2"]]

    def open(self, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return urlopen(Request(self.host.url + path, headers=headers, **options), timeout=60, context=UNVERIFIED)

    def _scheme(self, name: str) -> str:
        return "http" if self.commands[name][0] == "node" else "https"


@contextmanager
def two_centrals(host: Machine, git_url: str, store_url: str) -> Iterator[FleetOfTwoCentrals]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(balanced()) as balancer:
        yield FleetOfTwoCentrals(host, git_url, store_url=store_url, balancer=balancer)
