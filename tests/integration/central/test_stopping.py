"""A stop finishes: requests under way are answered, new ones are sent away, and nothing is missing in the trail."""

import http.client
import json
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.git import git
from tests.support.ports import free_port
from tests.support.processes import Machine, Process, machine
from tests.support.running_central import write_app

JSON = {"content-type": "application/json"}
STOP_SECONDS_MAX = 5.0


@dataclass
class Load:
    """Clients that deploy without a pause, each under a name of its own, until nobody answers any more."""

    central: Process
    answers: list[tuple[str, int, str, Any, Any]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """Requests whose connection was closed before they were read: the listener was closing."""

    def run(self, client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(self.central), timeout=60)
        headers = {**JSON, **self.central.local_key}
        for number in range(1_000):
            name = f"app-{client}-{number}"
            body = {"app_name": "hello", "name": name, "sites": [{"site_id": "home"}]}
            try:
                connection.connect()
            except OSError:
                return
            try:
                connection.request("POST", "/api/v1/deployments", json.dumps(body), headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                self.torn.append(name)
                return
            finally:
                connection.close()
            kind = answer.getheader("content-type") or ""
            self.answers.append((name, answer.status, kind, answer.getheader("retry-after"), text))

    def done(self) -> list[str]:
        return [name for name, status, *_ in self.answers if status == 202]


def start(host: Machine, port: int) -> Process:
    process = host.start(
        "central", "central", "--data", str(host.folder / "data"), "--http", f"127.0.0.1:{port}",
        "--grpc", f"127.0.0.1:{free_port()}",
    )  # fmt: skip
    process.wait_ready()
    return process


def port_of(central: Process) -> int:
    return int(central.url.rpartition(":")[2])


def call(central: Process, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(central), timeout=60)
    try:
        connection.request(method, path, json.dumps(body), {**JSON, **central.local_key})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text)
    finally:
        connection.close()


@pytest.fixture
def host(tmp_path: Path) -> Any:
    with machine(tmp_path / "host") as made:
        write_app(made.folder / "registry")
        yield made


def test_a_stop_under_load_loses_nothing_and_is_quick(host: Machine) -> None:
    port = free_port()
    central = start(host, port)
    call(central, "POST", "/api/v1/apps", {"repository": str(host.folder / "registry")})
    call(central, "PUT", "/api/v1/sites/home", {"epoch": "e", "software_version": "1"})
    load = Load(central)
    clients = [threading.Thread(target=load.run, args=(number,)) for number in range(6)]
    for client in clients:
        client.start()
    host.wait_for(lambda: len(load.done()) >= 5)
    central.stop()
    for client in clients:
        client.join(20)
    log = central.log.read_text()
    assert central.popen.returncode == 0, f"it was cut after its grace:\n{log[-2000:]}"
    assert "Traceback" not in log
    assert "write failed" not in log
    for _, status, kind, retry_after, text in load.answers:
        if status != 202:
            assert (status, kind) == (503, "application/problem+json"), text
            assert int(retry_after) >= 1

    central = start(host, port)
    assert call(central, "GET", "/api/v1/audit/verify")["ok"] is True
    there = {each["name"] for each in call(central, "GET", "/api/v1/deployments?limit=1000")["deployments"]}
    assert set(load.done()) <= there
    assert there.isdisjoint(load.torn)
    entries = call(central, "GET", "/api/v1/audit?limit=1000")["entries"]
    recorded = [each for each in entries if each["action"] == "deployments.create" and each["result"] == "done"]
    assert len(recorded) >= len(load.done())
    commits = {each["detail"]["commit"] for each in recorded}
    assert {json.loads(text)["commit"] for _, status, _, _, text in load.answers if status == 202} <= commits
    pushed = git("log", "--format=%s%x00%an", "main", cwd=host.folder / "data" / "deployments.git").splitlines()
    begun = [f"{each['target']}\0{each['actor']}" for each in entries if each["result"] == "begun"]
    assert Counter(pushed) - Counter(begun) == Counter(), "whatever is in Git was announced in the trail"


def test_refusals_that_were_only_counted_are_written_by_a_stop(host: Machine) -> None:
    port = free_port()
    central = start(host, port)
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/api/v1/overview", headers={"authorization": "Bearer wrong"})
        assert connection.getresponse().status == 401
        connection.close()
    central.stop()
    assert "write failed" not in central.log.read_text()
    central = start(host, port)
    entries = call(central, "GET", "/api/v1/audit")["entries"]
    assert [each["detail"].get("count") for each in entries if each["result"] == "refused"] == [None, 4]


def test_a_request_that_outlasts_the_grace_is_answered_and_named_in_the_trail(host: Machine) -> None:
    """The push hangs in a hook of the repository: the client hears that it may have been carried out."""
    port = free_port()
    central = start(host, port)
    call(central, "POST", "/api/v1/apps", {"repository": str(host.folder / "registry")})
    call(central, "PUT", "/api/v1/sites/home", {"epoch": "e", "software_version": "1"})
    hook = host.folder / "data" / "deployments.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {host.folder}/pushing\nsleep 4\n")
    hook.chmod(0o755)
    load = Load(central)
    client = threading.Thread(target=load.run, args=(0,))
    client.start()
    host.wait_for((host.folder / "pushing").exists)
    began = time.monotonic()
    central.popen.terminate()
    client.join(20)
    central.popen.wait(10)
    assert time.monotonic() - began < STOP_SECONDS_MAX + 1
    assert [(status, kind) for _, status, kind, _, _ in load.answers][:1] == [(503, "application/problem+json")]
    assert json.loads(load.answers[0][4])["code"] == "interrupted"
    hook.unlink()
    central = start(host, port)
    entries = call(central, "GET", "/api/v1/audit?limit=1000")["entries"]
    assert [each["actor"] for each in entries if "deploy hello" in each["target"]] == ["local"]
    assert [each["result"] for each in entries if each["action"] == "deployments.create"] == ["failed"]


def test_a_second_signal_does_not_wait(host: Machine) -> None:
    central = start(host, free_port())
    central.popen.terminate()
    central.popen.terminate()
    try:
        central.popen.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pytest.fail(central.log.read_text())
    assert "Traceback" not in central.log.read_text()
