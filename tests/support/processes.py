"""Homeport as a user runs it: processes of the command, on ports of their own, cleaned up by id."""

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from homeport.adapters.local_access import KeyKind, find
from tests.support.forks import HomeportProcess, run_homeport
from tests.support.images import CONTAINERS_CONF
from tests.support.ports import free_port
from tests.support.waiting import wait_for

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 5.0
UNVERIFIED = ssl._create_unverified_context()
"""For asking a role whether it is ready; who it is, is not the question then."""


@dataclass
class Process:
    """One running role, with its log in a file."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path
    url: str
    keys: Path
    """Where it leaves its local keys."""

    @property
    def local_key(self) -> dict[str, str]:
        """What a command of the user who started it sends."""
        found = find(self.keys, int(self.url.rpartition(":")[2]), KeyKind.PERSON)
        return {} if found is None else {"Authorization": f"Bearer {found.key}"}

    def open(self, path: str, **options: Any) -> Any:
        """Asks as the user who started it; `options` are those of a urllib Request."""
        headers = {**self.local_key, **options.pop("headers", {})}
        request = urllib.request.Request(self.url + path, headers=headers, **options)
        return urllib.request.urlopen(request, timeout=60, context=UNVERIFIED)

    def get(self, path: str) -> Any:
        with self.open(path) as answer:
            return json.load(answer)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            assert self.popen.poll() is None, f"{self.name} ended by itself:\n{self.log.read_text()[-4000:]}"
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(self.url + "/readyz", timeout=2, context=UNVERIFIED) as answer,
            ):
                if answer.status == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{self.name} was not ready in time:\n{self.log.read_text()[-4000:]}")

    def wait_up(self) -> None:
        """Until it says that it is up; for a role whose address only its own host can reach."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while " is up" not in self.log.read_text():
            assert self.popen.poll() is None, f"{self.name} ended by itself:\n{self.log.read_text()[-4000:]}"
            assert time.monotonic() < deadline, f"{self.name} was not up in time:\n{self.log.read_text()[-4000:]}"
            time.sleep(0.05)

    def stop(self) -> float:
        """SIGTERM; returns how long it took. More than five seconds is a failure."""
        began = time.monotonic()
        self.popen.terminate()
        try:
            self.popen.wait(STOP_SECONDS_MAX + 3)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop:\n{self.log.read_text()[-4000:]}") from None
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: the plug is pulled."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(10)


def pin_of(process: Process) -> str:
    """The pin of its authority, which it prints when it is up."""
    found = wait_for(lambda: re.search(r"--pin (sha256:[0-9a-f]{64})", process.log.read_text()))
    return str(found[1])


@dataclass
class Machine:
    """Starts roles below one folder and stops what is left of them. `url` is where the CLI is pointed."""

    folder: Path
    url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    running: list[Process] = field(default_factory=list)
    prefix: tuple[str, ...] = ()
    """What to put before each command: for a host in a network namespace of its own."""

    def command(self, *arguments: str, url: str | None = None) -> "subprocess.CompletedProcess[str]":
        """One `homeport` command, as a person in a terminal that cannot draw."""
        environment = {**self.clean_environment(), "HOMEPORT_URL": url or self.url}
        return run_homeport(arguments, prefix=self.prefix, environment=environment)

    def homeport(self, *arguments: str, url: str | None = None) -> str:
        """A command that has to work; returns what it printed."""
        done = self.command(*arguments, url=url)
        assert done.returncode == 0, (
            f"homeport {' '.join(arguments)} exited {done.returncode}: {done.stderr}{done.stdout}"
        )
        return done.stdout

    def json(self, *arguments: str, url: str | None = None) -> Any:
        return json.loads(self.homeport(*arguments, "-o", "json", url=url))

    def at(self, url: str) -> Process:
        """The running role that answers there."""
        return next(each for each in reversed(self.running) if each.url == url and each.popen.poll() is None)

    def wait_for(self, look: Callable[[], Any], *, seconds: float = 90.0) -> Any:
        """Looks again until the answer is truthy, and returns it."""
        return wait_for(look, seconds=seconds)

    def start(self, name: str, *arguments: str, http: int | None = None, scheme: str = "http") -> Process:
        """A role; `http` is its port, by default the one given with --http."""
        log = self.folder / f"{name}.log"
        port = http or _port_of(arguments)
        with log.open("ab") as out:
            popen = HomeportProcess(
                arguments,
                prefix=self.prefix,
                env=self.clean_environment(),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        process = Process(name, popen, log, f"{scheme}://127.0.0.1:{port}", self.folder / "state" / "homeport")
        self.running.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self.running):
            if process.popen.poll() is None:
                process.popen.terminate()
        for process in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(STOP_SECONDS_MAX)
            if process.popen.poll() is None:
                process.kill()

    def clean_environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "PYTHONPATH") if name in os.environ}
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            **kept,
            "HOME": str(home),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "CONTAINERS_CONF": str(CONTAINERS_CONF),
            "NO_COLOR": "1",
            **self.environment,
        }


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    folder.mkdir(parents=True, exist_ok=True)
    started = Machine(folder)
    try:
        yield started
    finally:
        started.close()


def start_up(
    machine: Machine, *, runtime: str = "podman", data: str = "up", node: str = "laptop", extra: tuple[str, ...] = ()
) -> Process:
    """The home profile on free ports; the CLI of `machine` is pointed at it."""
    http, grpc = free_port(), free_port()
    process = machine.start(
        "up",
        "up",
        "--data",
        str(machine.folder / data),
        "--http",
        f"127.0.0.1:{http}",
        "--grpc",
        f"127.0.0.1:{grpc}",
        "--runtime",
        runtime,
        "--node",
        node,
        *extra,
    )
    machine.url = process.url
    process.wait_ready()
    return process


def _port_of(arguments: tuple[str, ...]) -> int:
    return int(arguments[arguments.index("--http") + 1].rpartition(":")[2])
