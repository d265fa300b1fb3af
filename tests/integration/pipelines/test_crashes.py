"""`kill -9` of central at each step of a run, and of its site and node during it: it goes on where it was, and no job
is submitted twice."""

import itertools
import json
import signal
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from homeport.failpoints import VARIABLE, Point
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.processes import Machine, Process

POINTS = (Point.PIPELINE_BEFORE_STORE, Point.PIPELINE_AFTER_STORE, Point.PIPELINE_STEP_BEGUN)
INNER = """
name: inner
steps:
  only:
    job: {image: "app:1", command: [three]}
"""
BELOW = {"home": f"{Point.STORE_AFTER_COMMIT}:3", "one": str(Point.JOB_AFTER_START)}
"""Where the site and the node end, once each, while the run is under way."""
PIPELINE = """
name: chain
steps:
  first:
    job: {image: "app:1", command: [one]}
  call:
    if: steps.first.output.exit_code == 0
    http: {method: POST, url: BASE, body: "once"}
  inner:
    needs: [call]
    pipeline: {name: inner}
"""


class _Answers(BaseHTTPRequestHandler):
    keys: list[str] = []  # noqa: RUF012 - set again for each server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.keys.append(self.headers["idempotency-key"])
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Silent."""


@pytest.fixture
def base() -> Iterator[str]:
    _Answers.keys = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_kill_at_every_step_runs_each_job_once_and_ends_the_run_once(
    host: Machine, tmp_path: Path, base: str
) -> None:
    """A job, a request and another pipeline. Only the request may be repeated, with one key; how an inference
    request goes on is shown with a real engine, in tests/e2e/test_pipelines.py."""
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central("--pipelines-allow-http", "127.0.0.1")
    fleet.site("home", "--poll", "1")
    fleet.node("one", "home")
    host.wait_for(lambda: [node["liveness"] for node in host.json("nodes", "list")["nodes"]] == ["live"])
    file = tmp_path / "chain.yaml"
    file.write_text(PIPELINE.replace("BASE", base))
    inner = tmp_path / "inner.yaml"
    inner.write_text(INNER)
    host.homeport("pipelines", "save", str(inner))
    run = str(uuid.uuid4())
    dying = {role: _dying(host, fleet, role, point) for role, point in BELOW.items()}
    kills = Counter(_kills(host, fleet, file, run))
    starts = _starts(host, "one")
    runs = {each["id"]: each["pipeline"] for each in host.json("pipelines", "list")["runs"]}
    (child,) = [each for each, name in runs.items() if name == "inner"]
    assert starts == {f"{run}-first-0-1.1": 1, f"{child}-only-0-1.1": 1}
    assert len(runs) == 2, "the other pipeline was started once"
    assert _endings(host) == {run: 1, child: 1}
    assert len(set(_Answers.keys)) == 1, "a receiver knows the repeated request by its key"
    assert len(_Answers.keys) <= 1 + sum(kills.values())
    # Before the first and after the last step, and between all of them.
    assert min(kills[point] for point in POINTS) >= 2, kills
    assert {role: process.popen.poll() for role, process in dying.items()} == dict.fromkeys(BELOW, -signal.SIGKILL)


def _kills(host: Machine, fleet: Fleet, file: Path, run: str) -> Iterator[Point]:
    """One run, during which central is killed at the first point that it comes to, again and again: each life makes
    one step at most."""
    for point in itertools.cycle(POINTS):
        process = _dying(host, fleet, "central", str(point))
        if _submit(host, run, file, process.popen) == "SUCCEEDED":
            return
        host.wait_for(lambda: _ended(fleet, process), seconds=90)  # noqa: B023
        assert process.popen.poll() == -signal.SIGKILL
        yield point


def _ended(fleet: Fleet, central: Process) -> bool:
    """Whether central has ended. A site or a node that has is started again."""
    for role in BELOW:
        if fleet.roles[role].popen.poll() is not None:
            fleet.again(role)
    return central.popen.poll() is not None


def _dying(host: Machine, fleet: Fleet, role: str, point: str) -> Process:
    """Starts a role anew so that it ends at this point."""
    fleet.roles[role].kill()
    host.environment = {VARIABLE: point}
    process = fleet.roles[role] = host.start(role, *fleet.commands[role])
    host.environment = {}
    return process


def _submit(host: Machine, run: str, file: Path, dying: "subprocess.Popen[bytes]") -> str:
    """Again and again, with one id, as a client does that has got no answer. Returns the run's state, or why there
    is none."""

    def tried() -> str:
        if dying.poll() is not None:
            return "dead"
        done = host.command("pipelines", "run", "--detach", "--id", run, str(file), "-o", "json")
        assert done.returncode in (0, 1, 4, 5), done.stderr  # 5: a central that has just begun has another key
        return str(json.loads(done.stdout)["state"]) if done.returncode == 0 else ""

    return str(host.wait_for(tried))


def _starts(host: Machine, node: str) -> dict[str, int]:
    lines = (host.folder / f"data-{node}" / "runtime" / "jobs.jsonl").read_text().splitlines()
    return dict(Counter(body["id"] for what, body in map(json.loads, lines) if what == "start"))


def _endings(host: Machine) -> dict[str, int]:
    """How often central's log says that a run has succeeded."""
    lines = host.homeport("events", "-o", "json").splitlines()
    found = [json.loads(line) for line in lines if '"pipeline.state"' in line]
    return dict(Counter(each["data"]["run_id"] for each in found if each["data"]["state"] == "SUCCEEDED"))


TWICE = """
name: twice
steps:
  first:
    http: {method: POST, url: BASE, body: "one"}
  second:
    needs: [first]
    http: {method: POST, url: BASE, body: "two"}
"""


DUE = """
name: due
triggers: {schedule: {cron: "0 3 * * *", missed: run}}
steps: {ask: {http: {url: "http://127.0.0.1:1/"}}}
"""


@pytest.mark.anyio
async def test_another_central_goes_on_with_the_run_of_one_that_is_killed(
    host: Machine, tmp_path: Path, base: str, postgres: PostgresServer
) -> None:
    """Two on one PostgreSQL. The one that drives the run is killed with its request sent and no answer stored.
    What is due meanwhile is run by one of them."""
    database = await postgres.copy_database()
    shared = [
        "--git", str(bare_repository(tmp_path / "deployments.git")), "--store", postgres.url(database),
        "--keys", str(tmp_path / "keys"), "--pipelines-allow-http", "127.0.0.1",
    ]  # fmt: skip
    config = tmp_path / "central.toml"
    config.write_text("[central]\nlease_seconds = 2\n")
    shared += ["--config", str(config)]
    file = tmp_path / "twice.yaml"
    file.write_text(TWICE.replace("BASE", base))
    run = str(uuid.uuid4())
    try:
        host.environment = {VARIABLE: str(Point.PIPELINE_STEP_BEGUN)}
        holder = _central(host, "holder", shared)
        host.environment = {}
        other = _central(host, "other", shared)
        due = tmp_path / "due.yaml"
        due.write_text(DUE)
        host.homeport("pipelines", "save", str(due), url=holder.url)
        await postgres.execute("UPDATE pipelines SET next_at = next_at - interval '2 days'", database)
        host.command("pipelines", "run", "--detach", "--id", run, str(file), url=holder.url)
        assert holder.popen.wait(90) == -signal.SIGKILL
        host.url = other.url
        host.wait_for(lambda: host.json("pipelines", "show", run)["state"] == "SUCCEEDED")
        assert "it is sent again" in host.homeport("pipelines", "logs", run, "first")
        assert _endings(host) == {run: 1}
        host.wait_for(lambda: host.json("pipelines", "list", "--pipeline", "due", "--state", "FAILED")["runs"])
        assert len(host.json("pipelines", "list", "--pipeline", "due")["runs"]) == 1
        sent = Counter(_Answers.keys)
        assert sorted(sent.values()) == [1, 2], "the first one was sent by both, with one key"
    finally:
        host.close()
        await postgres.drop_database(database)


def _central(host: Machine, name: str, shared: list[str]) -> Process:
    data = str(host.folder / f"data-{name}")
    process = host.start(
        name,
        "central",
        "--data",
        data,
        "--http",
        f"127.0.0.1:{free_port()}",
        "--grpc",
        f"127.0.0.1:{free_port()}",
        *shared,
    )
    process.wait_ready()
    return process
