"""`kill -9` of node, site and central at each step of a job, which is a process of its own: it runs once, and has one
result everywhere. tests/e2e/test_jobs.py shows it with a container."""

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from homeport.failpoints import VARIABLE, Point
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.processes import Machine

STORE = (Point.STORE_BEFORE_COMMIT, Point.STORE_AFTER_COMMIT)
POINTS = {
    "one": (
        *(Point.JOURNAL_BEFORE_COMMIT, Point.JOURNAL_AFTER_COMMIT, Point.JOB_AFTER_START, Point.JOB_AFTER_END),
        # The second passage: the result, not the order.
        *("journal-before-commit:2", "journal-after-commit:2"),
    ),
    "home": (*STORE, "store-before-commit:3", "store-after-commit:3", "store-after-commit:5"),
    "central": (*STORE, "store-after-commit:3"),
}


@pytest.mark.parametrize("role", POINTS)
def test_a_kill_at_every_step_loses_no_job_and_runs_none_twice(host: Machine, tmp_path: Path, role: str) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central()
    fleet.site("home", "--poll", "1")
    fleet.node("one", "home", runtime="process")
    host.wait_for(lambda: _live(host))
    names = []
    for number, point in enumerate(POINTS[role]):
        name = f"job-{number}"
        names.append(name)
        fleet.roles[role].kill()
        host.environment = {VARIABLE: str(point)}
        process = host.start(role, *fleet.commands[role])
        host.environment = {}
        _submit(host, name, process.popen)
        assert process.popen.wait(60) == -signal.SIGKILL, f"{role} ended in another way at {point}"
        fleet.again(role)
        _submit(host, name)
        host.wait_for(lambda: _state(host, name) == "COMPLETED")  # noqa: B023
    assert Counter(_runs(host).read_text().split()) == dict.fromkeys(names, 1)
    assert _endings(host) == dict.fromkeys(names, 1)
    assert "older copy" not in (host.folder / "home.log").read_text(), "a restart is no restore"


def _submit(host: Machine, name: str, dying: "subprocess.Popen[bytes] | None" = None) -> None:
    """Again and again, with one id: as a client does that has got no answer."""
    script = f"echo {name} >> {_runs(host)}"

    def tried() -> bool:
        done = host.command("jobs", "run", "--detach", "--site", "home", "--id", name, "--", "/bin/sh", "-c", script)
        assert done.returncode in (0, 1, 4), done.stderr
        return done.returncode == 0 or (dying is not None and dying.poll() is not None)

    host.wait_for(tried)


def _live(host: Machine) -> bool:
    return [node["liveness"] for node in host.json("nodes", "list")["nodes"]] == ["live"]


def _state(host: Machine, name: str) -> str:
    done = host.command("jobs", "show", name, "-o", "json")
    return str(json.loads(done.stdout)["state"]) if done.returncode == 0 else ""


def _runs(host: Machine) -> Path:
    """Where each job leaves a line when it runs."""
    return host.folder / "runs.txt"


def _endings(host: Machine) -> dict[str, int]:
    """How often central's log says that a job has completed."""
    lines = host.homeport("events", "-o", "json").splitlines()
    found = [json.loads(line) for line in lines if '"job.state"' in line]
    return dict(Counter(each["data"]["job_id"] for each in found if each["data"]["state"] == "COMPLETED"))
