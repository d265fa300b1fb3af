"""The roles as processes: how they begin, how they refuse to, and how they end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homeport.adapters.local_access import KeyKind, default_folder, find
from tests.integration.cli.conftest import Homeport
from tests.support.forks import HomeportProcess
from tests.support.ports import free_port

STOP_SECONDS_MAX = 30.0


@contextmanager
def role(*arguments: str, log: Path) -> Iterator["subprocess.Popen[str]"]:
    """The process once it has said that it is up; ended with the block."""
    with log.open("w") as errors:
        process = HomeportProcess(arguments, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert first.startswith("✓ "), first + log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(url: str) -> dict[str, object]:
    found = find(default_folder(os.environ), int(url.split("/")[2].rpartition(":")[2]), KeyKind.PERSON)
    headers = {} if found is None else {"Authorization": f"Bearer {found.key}"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        body = json.loads(answer.read())
        assert isinstance(body, dict)
        return body


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_up_starts_serves_and_stops_cleanly_twice(tmp_path: Path, end: signal.Signals) -> None:
    http, grpc = free_port(), free_port()
    command = ("up", "--data", str(tmp_path / "data"), "--http", str(http), "--grpc", str(grpc), "--runtime", "null")
    nodes = []
    for attempt in ("first", "second"):
        with role(*command, log=tmp_path / attempt) as process:
            assert ask(f"http://127.0.0.1:{http}/healthz")["status"] == "ok"
            nodes.append(_eventually_one_node(http))
            process.send_signal(end)
            assert process.wait(STOP_SECONDS_MAX) == 0, (tmp_path / attempt).read_text()
        (connected,) = [
            line for line in (tmp_path / attempt).read_text().splitlines() if "connected to the site" in line
        ]
        assert "in this process" in connected and "127.0.0.1" not in connected, "there is no address between them"
    assert nodes[0] == nodes[1]


def test_one_file_and_a_folder_start_a_working_node(tmp_path: Path) -> None:
    http, site_grpc, node_http = (str(free_port()) for _ in range(3))
    home = ("up", "--data", str(tmp_path / "home"), "--http", http, "--grpc", site_grpc, "--runtime", "null")
    file = tmp_path / "homeport.toml"
    file.write_text(
        f'[node]\nsite = "127.0.0.1:{site_grpc}"\ndata = "{tmp_path / "node"}"\n'
        f'http = "127.0.0.1:{node_http}"\nid = "press-3"\nruntime = "null"\nlabel = ["room=attic"]\n'
    )
    with role(*home, log=tmp_path / "home.log"), role("node", "--config", str(file), log=tmp_path / "node.log"):
        assert ask(f"http://127.0.0.1:{node_http}/healthz")["node_id"] == "press-3"
        deadline = time.monotonic() + 60
        while "press-3" not in (found := nodes_of(int(http))):
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        assert found["press-3"]["labels"]["room"] == "attic"  # type: ignore[index]


def nodes_of(port: int) -> dict[str, dict[str, object]]:
    listed = ask(f"http://127.0.0.1:{port}/api/v1/nodes")["nodes"]
    assert isinstance(listed, list)
    return {each["id"]: each for each in listed}


def test_the_three_roles_find_each_other_as_processes(tmp_path: Path) -> None:
    http, grpc, site_http, site_grpc, node_http = (str(free_port()) for _ in range(5))
    central = ("central", "--data", str(tmp_path / "central"), "--http", http, "--grpc", grpc)
    site = (
        *("site", "--name", "line-7", "--central", f"http://127.0.0.1:{http}", "--data", str(tmp_path / "site")),
        *("--http", site_http, "--grpc", site_grpc),
    )
    node = (
        *("node", "--site", f"127.0.0.1:{site_grpc}", "--data", str(tmp_path / "node"), "--http", node_http),
        *("--runtime", "null", "--id", "press-3", "--label", "room=attic"),
    )
    with (
        role(*central, log=tmp_path / "central.log"),
        role(*site, log=tmp_path / "site.log"),
        role(*node, log=tmp_path / "node.log") as last,
    ):
        assert _eventually_one_node(int(http)) == "press-3"
        assert ask(f"http://127.0.0.1:{node_http}/healthz")["status"] == "ok"
        last.send_signal(signal.SIGTERM)
        assert last.wait(STOP_SECONDS_MAX) == 0


def test_a_busy_port_is_met_with_the_name_of_who_holds_it(homeport: Homeport, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = homeport(
            "up", "--http", f"127.0.0.1:{port}", "--grpc", str(free_port()), "--data", str(tmp_path / "d")
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"✗ Port {port} on 127.0.0.1 is taken by ")
    assert f"(pid {os.getpid()})" in done.stderr
    assert f"--http 127.0.0.1:{port + 1}" in done.stderr


def test_a_missing_engine_is_met_with_what_to_install(homeport: Homeport, tmp_path: Path) -> None:
    arguments = (
        "--data",
        str(tmp_path),
        "--http",
        str(free_port()),
        "--grpc",
        str(free_port()),
        "--runtime",
        "podman",
    )
    done = homeport("up", *arguments, PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("✗ ")
    assert "nstall" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_site_with_a_name_that_is_none_is_told_so(homeport: Homeport, tmp_path: Path) -> None:
    ports = ("--http", str(free_port()), "--grpc", str(free_port()))
    done = homeport("site", "--name", "Line 7", "--git", str(tmp_path), "--data", str(tmp_path / "d"), *ports)
    assert done.returncode == 1
    assert '"Line 7" is not a valid site name' in done.stderr


@pytest.mark.parametrize("role_name", ["central", "site"])
@pytest.mark.parametrize("option", ["--connections", "--connections-per-address"])
def test_a_number_of_connections_that_cannot_work_is_refused(homeport: Homeport, role_name: str, option: str) -> None:
    done = homeport(role_name, option, "0")
    assert done.returncode == 2
    assert f"Invalid value for '{option}'" in done.stderr


def test_central_and_site_keep_to_the_connections_they_are_told(tmp_path: Path) -> None:
    http, grpc, git = str(free_port()), str(free_port()), str(tmp_path / "central" / "deployments.git")
    central = ("central", "--data", str(tmp_path / "central"), "--http", http, "--grpc", grpc, "--connections", "10")
    site_http = str(free_port())
    site = ("site", "--name", "home", "--git", git, "--data", str(tmp_path / "site"), "--http", site_http)
    rest = ("--grpc", str(free_port()), "--connections", "10")
    with role(*central, log=tmp_path / "central.log"), role(*site, *rest, log=tmp_path / "site.log"):
        for port in (http, site_http):
            held = [socket.create_connection(("127.0.0.1", int(port)), 10) for _ in range(10)]
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                ask(f"http://127.0.0.1:{port}/healthz")
            for each in held:
                each.close()
            _eventually_answers(f"http://127.0.0.1:{port}/healthz")


def test_the_doctor_names_a_busy_port_an_unreachable_repository_and_a_missing_engine(
    homeport: Homeport, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    git = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (tools / "git").symlink_to(git)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = homeport(
            *("doctor", "--http", str(port), "--grpc", str(free_port()), "--data", str(tmp_path), "-o", "json"),
            *("--runtime", "podman", "--deployments", str(tmp_path / "nowhere.git")),
            PATH=str(tools),
        )
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    problems = {finding["check"]: finding for finding in answer["findings"] if finding["level"] == "problem"}
    assert set(problems) == {"ports", "repository", "engine"}
    assert f"Port {port}" in problems["ports"]["message"]
    assert "nowhere.git" in problems["repository"]["message"]
    assert "apt-get install podman" in problems["engine"]["hint"]
    assert not answer["healthy"]


def test_the_doctor_finds_a_machine_without_an_engine_of_its_own_healthy_when_none_is_asked_for(
    homeport: Homeport, tmp_path: Path
) -> None:
    ports = ("--http", str(free_port()), "--grpc", str(free_port()))
    done = homeport("doctor", *ports, "--data", str(tmp_path), "--runtime", "null")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("✓ python ")


def _eventually_answers(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            assert ask(url)
            return
        time.sleep(0.02)
    pytest.fail(f"{url} does not answer")


def _eventually_one_node(http: int) -> str:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        nodes = ask(f"http://127.0.0.1:{http}/api/v1/nodes")["nodes"]
        assert isinstance(nodes, list)
        if nodes:
            return str(nodes[0]["id"])
        time.sleep(0.1)
    pytest.fail("no node has joined within 15 s")
