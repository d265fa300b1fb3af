"""The three roles as separate processes on one machine: central, sites and their nodes."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import free_port
from tests.support.processes import Machine, Process


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
        process = self.host.start(name, *self.commands[name])
        process.wait_ready()
        self.roles[name] = process
        return process

    def _start(self, name: str, *command: str) -> Process:
        self.commands[name] = (*command, "--data", str(self._data(name)))
        return self.again(name)

    def _data(self, name: str) -> Path:
        return self.host.folder / f"data-{name}"
