"""F1: each role is killed before and after every durable write, and between all steps on a node.

Short: the points of a role follow each other, so that each start also recovers from the crash before and may die in
the middle of that. Long: three times, each at a later passage, and once more with a SIGTERM at each of them, after
which a role ends by itself, in time and without an error. A point that is never reached fails.
"""

import contextlib
import itertools
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial

import pytest

from homeport.failpoints import TERM, VARIABLE, Point
from tests.faults.conftest import IS_LONG
from tests.support.hosts import HostFleet, join_arguments
from tests.support.processes import Process

REACHED_SECONDS_MAX = 30.0
STORE = (Point.STORE_BEFORE_COMMIT, Point.STORE_AFTER_COMMIT)
POINTS = {
    "central": (*STORE, Point.GIT_BEFORE_COMMIT, Point.GIT_BEFORE_PUSH, Point.GIT_AFTER_PUSH),
    "north": STORE,
    "n1": (
        *(Point.JOURNAL_BEFORE_COMMIT, Point.JOURNAL_AFTER_COMMIT),
        *(Point.COMPONENT_BEFORE_PLACE, Point.COMPONENT_AFTER_PLACE, Point.RUNTIME_AFTER_PULL),
        *(Point.RUNTIME_AFTER_CREATE, Point.RUNTIME_BEFORE_HEALTH, Point.RUNTIME_AFTER_STOP),
        Point.RUNTIME_AFTER_REMOVE,
    ),
}
FRESH = (Point.COMPONENT_BEFORE_PLACE, Point.COMPONENT_AFTER_PLACE)
"""Passed only by what was never fetched before."""
REPLICAS = (Point.LEASE_TAKEN,)
"""Passed only by one of several centrals; test_replicas kills it there and elsewhere."""
JOINING = (Point.FILE_BEFORE_REPLACE, Point.FILE_AFTER_REPLACE)
"""Identities are written when a machine joins; a test of its own walks every file of it."""
JOBS = (Point.JOB_AFTER_START, Point.JOB_AFTER_END)
"""Passed by jobs; `integration/jobs/test_crashes` walks them."""
TASKS = (Point.TASK_BEFORE_ADMISSION, Point.TASK_AFTER_ADMISSION, Point.TASK_AFTER_START, Point.TASK_BEFORE_END)
"""Passed by inference tasks; `e2e/test_inference` walks them."""
PIPELINES = (Point.PIPELINE_BEFORE_STORE, Point.PIPELINE_AFTER_STORE, Point.PIPELINE_STEP_BEGUN)
"""Passed by runs of pipelines; `integration/pipelines/test_crashes` walks them."""
ENDS = ("1", "2", "3", f"1:{TERM}") if IS_LONG else ("1",)
"""At which passage of a point a role ends, and how: killed, or asked to stop."""


def test_the_walk_leaves_out_no_point() -> None:
    assert {*JOINING, *REPLICAS, *JOBS, *TASKS, *PIPELINES}.union(*POINTS.values()) == set(Point)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("role", POINTS)
def test_a_kill_at_every_step_loses_nothing_and_doubles_nothing(fleet: HostFleet, role: str, end: str) -> None:
    nth, expected = int(end[0]), 0 if end.endswith(TERM) else -signal.SIGKILL
    witness = fleet.deploy("witness")
    moving = fleet.deploy("moving", mood="first")
    passing = [fleet.deploy(f"passing-{number}") for number in range(nth)]
    for key in (witness, moving, *passing):
        fleet.settled(key)
    (before,) = fleet.podman.ids(witness)
    fleet.roles[role].kill()
    tries = itertools.count(1)
    for point in POINTS[role]:
        process = fleet.launch(role, environment={VARIABLE: f"{point}:{end}"})
        for _ in range(2 * nth + 1):
            if _is_dead(process):
                break
            number = next(tries)
            if point is Point.RUNTIME_AFTER_REMOVE:
                while passing:
                    _try(process, partial(fleet.delete, passing.pop()))
            elif point in FRESH:
                _try(process, lambda: fleet.deploy(f"new-{number}"))  # noqa: B023
            else:
                _try(process, lambda: fleet.deploy("moving", mood=f"mood-{number}"))  # noqa: B023
            _await_death(process)
        assert _is_dead(process), f"{role} never came to {point}:{end}\n{fleet.logs()}"
        assert process.popen.returncode == expected, f"{role} ended in another way at {point}\n{fleet.logs()}"
        assert len(fleet.podman.containers(moving)) <= 1, "two releases at once"
    fleet.again(role)
    fleet.wait(lambda: fleet.deploy("moving", mood="last"))
    fleet.wait(lambda: _moods(fleet, moving) == ["last"], what="the last mood alone to run", seconds=60)
    _all_settled(fleet)
    assert fleet.podman.ids(witness) == {before}, "a restart of a role restarts nothing"
    for each in fleet.ask("GET", "/deployments")["deployments"]:
        told = [(line["trigger"], line["revision"], line["at"]) for line in fleet.history(each["id"])]
        assert all(one != two for one, two in itertools.pairwise(told)), f"told twice: {told}"


def _all_settled(fleet: HostFleet) -> None:
    def look() -> bool:
        found = fleet.ask("GET", "/deployments")["deployments"]
        made = sorted(each["Labels"]["homeport.deployment"] for each in fleet.podman.containers())
        return {each["state"] for each in found} == {"INSTALLED"} and made == sorted(each["id"] for each in found)

    fleet.wait(look, seconds=60, what="one container for each deployment")


def _moods(fleet: HostFleet, key: str) -> list[str]:
    found = []
    for each in fleet.podman.containers(key):
        text = fleet.podman.run("inspect", "--format", "{{.Config.Env}}", each["Id"], check=False)
        found += [
            word.removeprefix("GREETING=") for word in text.strip("[]\n").split() if word.startswith("GREETING=")
        ]
    return found


def _is_dead(process: Process) -> bool:
    return process.popen.poll() is not None


def _await_death(process: Process) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.popen.wait(REACHED_SECONDS_MAX / 3)


def _try(process: Process, call: Callable[[], object]) -> None:
    """Until central answers, or the process has died of it."""
    deadline = time.monotonic() + REACHED_SECONDS_MAX
    while not _is_dead(process):
        try:
            call()
        except OSError:
            assert time.monotonic() < deadline, "central does not answer, or only refuses"
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("point", JOINING)
def test_a_machine_that_is_killed_while_joining_joins_at_the_next_start(fleet: HostFleet, point: Point) -> None:
    """With the very same command, whatever file it was writing."""
    name = f"new-{'a' if point is JOINING[0] else 'b'}"
    fleet.machines[name] = fleet.machines["n1"]
    fleet.commands[name] = (
        *join_arguments(fleet, name), "--runtime", "null", "--http", "127.0.0.1:22510",
        "--data", str(fleet.data(name)),
    )  # fmt: skip
    deaths = 0
    try:
        for nth in itertools.count(1):
            process = fleet.launch(name, environment={VARIABLE: f"{point}:{nth}"})
            fleet.wait(lambda: _is_dead(process) or " is up" in process.log.read_text(), what="an end or a start")  # noqa: B023
            if not _is_dead(process):
                break
            assert process.popen.returncode == -signal.SIGKILL, process.log.read_text()
            deaths += 1
        assert deaths >= 2, "joining writes a key and a certificate at least"
        fleet.wait(
            lambda: [
                each for each in fleet.ask("GET", "/nodes")["nodes"]
                if each["id"] == name and each["liveness"] == "live"
            ],
            what="the new node to be live",
        )  # fmt: skip
    finally:
        fleet.roles.pop(name).kill()
        with contextlib.suppress(OSError):
            fleet.ask("DELETE", f"/nodes/{name}")
