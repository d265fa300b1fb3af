"""Jobs as a person runs them: in a real container and natively, attached, with files, secrets and time limits."""

import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.failpoints import VARIABLE, Point
from tests.e2e.test_secrets import set_secret
from tests.support.engines import probe_image
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.podman import podman
from tests.support.processes import Machine, start_up
from tests.support.registry import RunningRegistry


@pytest.fixture
def node(host: Machine, node_prefix: str) -> Iterator[str]:
    name = f"{node_prefix}-n"
    start_up(host, node=name)
    yield name
    for container in json.loads(podman("ps", "--all", "--format", "json") or "[]"):
        if (container.get("Labels") or {}).get("homeport.job-node") == name:
            podman("rm", "--force", "--time", "0", str(container["Id"]), check=False)


@pytest.fixture(scope="module")
def image(registry: RunningRegistry) -> Iterator[str]:
    """Busybox alone."""
    with probe_image(registry.host) as reference:
        yield reference


def test_a_command_in_a_container_prints_keeps_files_and_ends_with_its_exit_code(
    host: Machine, node: str, image: str
) -> None:
    set_secret(host, "home", "TOKEN", "hunter2hunter2")
    full = '{"level": "error", "msg": "disk full", "percent": 97}'
    done = host.command(
        *(
            "jobs",
            "run",
            "--image",
            image,
            "--id",
            "mine",
            "--secret",
            "TOKEN",
            "--env",
            "WHO=Ann",
            "--memory",
            "64Mi",
        ),
        *("--artifact", "/out.txt", "--artifact", "/none", "--"),
        *(
            "/bin/sh",
            "-c",
            f'echo "hello $WHO"; echo "key $TOKEN"; echo {shlex.quote(full)}; printf kept > /out.txt; exit 7',
        ),
    )
    printed = f"hello Ann\nkey •••\n{full}\n"
    assert (done.returncode, done.stdout) == (7, printed), done.stderr
    shown = host.json("jobs", "show", "mine")
    assert (shown["state"], shown["exit_code"], shown["node"]) == ("FAILED", 7, node)
    assert shown["artifacts"] == [{"path": "/out.txt", "size": 4}]
    assert host.homeport("jobs", "artifact", "mine", "/out.txt") == "kept"
    assert host.homeport("jobs", "logs", "mine") == printed
    assert "hunter2" not in json.dumps(shown)
    host.wait_for(lambda: host.homeport("logs", "job/mine").splitlines()[2:3])
    first, *_ = host.homeport("logs", "job/mine").splitlines()
    assert first.endswith(f"{node}/mine  hello Ann"), "without the positions of its lines"
    (error,) = host.homeport("logs", "job/mine", "--level", "error").splitlines()
    assert error.endswith(f"✗ {node}/mine  disk full   percent=97")
    again = host.command("jobs", "run", "--image", image, "--id", "mine", "--", "other")
    assert (again.returncode, "runs something else" in again.stderr) == (5, True)


def test_a_native_command_over_its_time_is_killed_with_all_it_has_started(host: Machine, node: str) -> None:
    done = host.command("jobs", "run", "--timeout", "1s", "--", "/bin/sh", "-c", "echo $$; sleep 600 & wait")
    assert done.returncode == 1
    assert "did not end within 1 s and was killed" in done.stderr
    group = int(done.stdout.split()[0])
    host.wait_for(lambda: not _lives(group))


def test_what_a_quick_job_prints_arrives_whole(host: Machine, node: str) -> None:
    """More than stays with the job, and before anybody could read it; the site still has it for a while."""
    wanted = "".join(f"{number}\n" for number in range(1, 20_001))
    done = host.command("jobs", "run", "--id", "count", "--", "seq", "1", "20000")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == wanted
    assert host.homeport("jobs", "logs", "count") == wanted
    assert len(host.json("jobs", "show", "count")["output"]) == 65_536


def test_a_running_job_is_followed_and_cancelled(host: Machine, node: str, image: str) -> None:
    colourful = r"printf '\033[32mon\033[0m\n'; printf 'beep\007\n'; sleep 600"
    printed = "\x1b[32mon\x1b[0m\nbeep\x07\n"
    host.homeport("jobs", "run", "--detach", "--id", "long", "--image", image, "--", "/bin/sh", "-c", colourful)
    host.wait_for(lambda: host.command("jobs", "logs", "long").stdout == printed)
    assert host.command("jobs", "logs", "long").stderr == "", "nothing of it is missing"
    logged = [line["text"] for line in map(json.loads, host.homeport("logs", "job/long", "-o", "json").splitlines())]
    assert logged == ["on", "beep\\x07"], "a terminal obeys nothing of it"
    host.homeport("jobs", "cancel", "long")
    host.wait_for(lambda: host.json("jobs", "show", "long")["state"] == "CANCELLED")
    states = [
        json.loads(line)["data"] for line in host.homeport("events", "-o", "json").splitlines() if "job.state" in line
    ]
    assert [each["state"] for each in states] == ["PENDING", "ASSIGNED", "RUNNING", "CANCELLED"]
    listed = host.json("jobs", "list", "--state", "CANCELLED")["jobs"]
    assert [each["id"] for each in listed] == ["long"]
    assert host.homeport("jobs", "logs", "long") == printed, "what it has printed stays"
    assert podman("ps", "--all", "--quiet", "--filter", f"label=homeport.job-node={node}") == ""


@pytest.mark.parametrize("where", ["container", "machine"])
def test_what_a_job_prints_when_it_is_told_to_end_stays(host: Machine, node: str, image: str, where: str) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo on; while :; do sleep 0.1; done"
    of_image = ("--image", image) if where == "container" else ()
    host.homeport("jobs", "run", "--detach", "--id", "polite", *of_image, "--", "/bin/sh", "-c", script)
    host.wait_for(lambda: host.homeport("jobs", "logs", "polite") == "on\n")
    host.homeport("jobs", "cancel", "polite")
    host.wait_for(lambda: host.json("jobs", "show", "polite")["state"] == "CANCELLED")
    said = host.json("jobs", "show", "polite")["output"].splitlines()
    assert (said[0], said[-1]) == ("on", "bye")
    host.wait_for(lambda: "bye" in host.homeport("logs", "job/polite"))


def test_a_job_larger_than_any_node_names_what_it_lacks(host: Machine, node: str) -> None:
    done = host.command("jobs", "run", "--image", "app:1", "--memory", "9000Gi")
    assert done.returncode == 1
    assert f"{node} needs 8.8Ti of memory, has" in done.stderr
    assert host.command("jobs", "run", "--image", "NOT AN IMAGE").returncode == 1
    assert host.command("jobs", "show", "nothing").returncode == 3


def test_a_job_that_waits_says_for_what(host: Machine, node: str) -> None:
    (machine,) = host.json("nodes", "list")["nodes"]
    cores = str(machine["capabilities"]["cpu_cores"])
    for name in ("first", "second"):
        host.homeport("jobs", "run", "--detach", "--id", name, "--cpu", cores, "--", "/bin/sleep", "600")
    host.wait_for(lambda: host.json("jobs", "show", "first")["state"] == "RUNNING")
    why = "waits: every node that can run it is busy with other jobs"
    host.wait_for(lambda: host.json("jobs", "show", "second")["reason"] == why)
    assert why in host.homeport("why", "job/second")
    for name in ("second", "first"):
        host.homeport("jobs", "cancel", name)
    host.wait_for(lambda: host.json("jobs", "show", "first")["state"] == "CANCELLED")


def test_what_a_person_types_by_mistake_is_answered_with_a_sentence(host: Machine, node: str) -> None:
    failed = host.command("jobs", "run", "--retries", "1", "--", "/bin/sh", "-c", "echo try; exit 4")
    (job,) = host.json("jobs", "list")["jobs"]
    short = job["id"].partition("-")[0]
    assert (failed.returncode, failed.stdout) == (4, "try\ntry\n")
    assert f"✗ job {short} FAILED after 2 attempts: The job ended with exit code 4 (EXITED)" in failed.stderr
    host.wait_for(lambda: len(host.homeport("logs", f"job/{short}").splitlines()) == 2)
    unknown = host.command("logs", "job/nothing")
    assert (unknown.returncode, 'no job "nothing"' in unknown.stderr) == (3, True), unknown.stderr
    nothing = host.command("jobs", "run")
    assert (nothing.returncode, "Give the command to run" in nothing.stderr) == (2, True), nothing.stderr
    confused = host.command("logs", node)
    assert (confused.returncode, f"homeport logs node/{node}" in confused.stderr) == (3, True), confused.stderr


def test_a_container_runs_once_though_node_site_and_central_are_killed(
    host: Machine, node_prefix: str, image: str, tmp_path: Path
) -> None:
    """tests/integration/jobs/test_crashes.py walks every step, with native commands."""
    fleet, node = Fleet(host, str(bare_repository(tmp_path / "deployments.git"))), f"{node_prefix}-n"
    fleet.central()
    fleet.site("home", "--poll", "1")
    fleet.node(node, "home", runtime="podman")
    host.wait_for(
        lambda: [each["capabilities"]["engine"][:6] for each in host.json("nodes", "list")["nodes"]] == ["podman"]
    )
    run = ("jobs", "run", "--detach", "--site", "home", "--image", image)
    for what, role, point in (
        ("started", node, Point.JOB_AFTER_START),
        ("ended", node, Point.JOB_AFTER_END),
        ("given", "home", f"{Point.STORE_AFTER_COMMIT}:2"),
        ("taken", "central", Point.STORE_AFTER_COMMIT),
    ):
        name = f"{node}-{what}"
        fleet.roles[role].kill()
        host.environment = {VARIABLE: str(point)}
        dying = host.start(role, *fleet.commands[role])
        host.environment = {}
        submission = (*run, "--id", name, "--", "/bin/sh", "-c", "echo once; sleep 0.5; exit 3")
        host.wait_for(lambda: host.command(*submission).returncode == 0 or dying.popen.poll() is not None)  # noqa: B023
        assert dying.popen.wait(60) == -signal.SIGKILL, point
        fleet.again(role)
        host.wait_for(lambda: host.command(*submission).returncode == 0)  # noqa: B023
        host.wait_for(lambda: host.json("jobs", "show", name)["state"] == "FAILED")  # noqa: B023
        assert host.json("jobs", "show", name)["exit_code"] == 3
        assert host.homeport("jobs", "logs", name) == "once\n"
        starts = ("events", "--stream=false", "--since", "10m", "--filter", "event=start")
        assert len(podman(*starts, "--filter", f"label=homeport.job-run={name}.1").splitlines()) == 1, name


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
