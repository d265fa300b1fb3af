"""What a person waits for: the command line, `homeport up`, its memory, and the way from a push to INSTALLED.

Each function returns numbers; `scripts/bench` prints them beside what is to be reached.
"""

import json
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.deployment_files import deployment_file
from tests.support.fleet import Fleet
from tests.support.forks import COMMAND
from tests.support.git import Person, bare_repository
from tests.support.images import EXAMPLES, build_images, materialise, podman_environment
from tests.support.podman import podman, remove_leftovers
from tests.support.processes import Machine, Process, machine, start_up
from tests.support.registry import running_registry

Numbers = dict[str, float]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def command_line(repetitions: int = 9) -> Numbers:
    """Medians in seconds of commands that need no server."""

    def timed(*arguments: str) -> float:
        taken = []
        for _ in range(repetitions):
            started = time.perf_counter()
            subprocess.run([str(COMMAND), *arguments], capture_output=True, check=True)
            taken.append(time.perf_counter() - started)
        return statistics.median(taken)

    return {
        "homeport version": timed("version"),
        "homeport --help": timed("--help"),
        "homeport deploy --help": timed("deploy", "--help"),
        "homeport up --help": timed("up", "--help"),
    }


def start_of_up() -> Numbers:
    """From the command to /readyz, on an empty folder and on one that was used before."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder) / "host") as host:
        started = time.perf_counter()
        first = start_up(host, runtime="null")
        fresh = time.perf_counter() - started
        memory = _pss(first.popen.pid)
        first.stop()
        started = time.perf_counter()
        start_up(host, runtime="null")
        return {"first start": fresh, "second start": time.perf_counter() - started, "memory MB": memory}


def idle_up(seconds: float = 20.0) -> Numbers:
    """Memory (PSS, MB) and CPU (% of a core) of all three roles in one process, with one app installed."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder) / "host") as host:
        process = start_up(host, runtime="null")
        await_site(host)
        person = Person(str(own_repository(host)), Path(folder) / "person")
        _pushes(host, person, 1, lambda _: deployment_file(name="app"))
        time.sleep(5)
        before = _cpu(process.popen.pid)
        time.sleep(seconds)
        return {
            "memory MB": _pss(process.popen.pid),
            "CPU %": 100 * (_cpu(process.popen.pid) - before) / seconds,
        }


def churn_of_up(rounds: int = 250, deployments: int = 20) -> Numbers:
    """How much `homeport up` grows (MB) while each deployment is changed again and again: in the first half of the
    rounds, and in the second. What is kept for each change would show in both alike."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder) / "host") as host:
        process = start_up(host, runtime="null")
        await_site(host)
        person = Person(str(own_repository(host)), Path(folder) / "person")
        keys = [str(uuid.uuid4()) for _ in range(deployments)]
        sizes = []
        for number in range(rounds):
            person.pull()
            version = f"1.0.{number}"
            for each, key in enumerate(keys):
                person.write(*deployment_file(name=f"app-{each}", version=version, deployment_id=key))
            person.push()
            host.wait_for(lambda: _all_run(host, version, deployments), seconds=60)  # noqa: B023
            sizes.append(_uss(process.popen.pid))
        half = rounds // 2
        return {"first half MB": sizes[half] - sizes[0], "second half MB": sizes[-1] - sizes[half]}


def _all_run(host: Machine, version: str, count: int) -> bool:
    """Whether as many deployments as `count` are INSTALLED with this version, each on its node."""
    rows = host.at(host.url).get("/api/v1/deployments")["deployments"]
    states = [(row["state"], row["app_version"], row["running_versions"]) for row in rows]
    return states == [("INSTALLED", version, [version])] * count


def idle(seconds: float = 15.0) -> Numbers:
    """Memory (PSS, MB) and CPU (% of a core) of each role with nothing to do, nodes with Podman and without."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder) / "host") as host:
        fleet = Fleet(host, str(bare_repository(Path(folder) / "deployments.git")))
        fleet.central()
        fleet.site("north")
        fleet.node("bench-null", "north")
        fleet.node("bench-podman", "north", runtime="podman")
        time.sleep(5)
        before = {name: _cpu(process.popen.pid) for name, process in fleet.roles.items()}
        time.sleep(seconds)
        numbers = {}
        for name, process in fleet.roles.items():
            numbers[f"{name} memory MB"] = _pss(process.popen.pid)
            numbers[f"{name} CPU %"] = 100 * (_cpu(process.popen.pid) - before[name]) / seconds
        return numbers


def push_to_installed_null(repetitions: int = 20) -> Numbers:
    """Seconds from the end of `git push` to the INSTALLED event read from central, with the null runtime."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder) / "host") as host:
        start_up(host, runtime="null")
        await_site(host)
        person = Person(str(own_repository(host)), Path(folder) / "person")
        taken = _pushes(host, person, repetitions, lambda number: deployment_file(name=f"app-{number}"))
        return {"median": statistics.median(taken), "p95": percentile(taken, 0.95)}


def push_to_installed_podman(repetitions: int = 10) -> Numbers:
    """The same with real containers, beside what the tools alone take for the same compose file and image."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder, running_registry() as registry:
        image = build_images(registry.host)[0]
        podman("pull", "--tls-verify=false", image)
        apps = materialise(EXAMPLES / "apps", registry.host, Path(folder) / "apps")
        version = apps / "demo" / "broken" / "1.0.0"
        compose = version / "components" / "web" / "compose.yaml"
        compose.write_text(compose.read_text().replace("8080/broken", "8080/healthz"))
        try:
            with machine(Path(folder) / "host") as host:
                host.homeport("apps", "push", str(version), f"oci://{registry.host}/packages/bench")
                start_up(host, node=f"{prefix}-laptop")
                await_site(host)
                person = Person(str(own_repository(host)), Path(folder) / "person")

                def file(number: int) -> tuple[str, str]:
                    path, text = deployment_file(name=f"bench-{number}")
                    return path, text.replace(
                        f"oci://127.0.0.1:5005/demo/bench-{number}", f"oci://{registry.host}/demo/broken/web"
                    )

                taken, composed, ran = [], [], []
                for number in range(repetitions):  # in turns, so that a noisy moment meets all three alike
                    taken += _pushes(host, person, 1, lambda _, number=number: file(number))  # type: ignore[misc]
                    composed.append(compose_up(compose, f"{prefix}-{number}"))
                    ran.append(_podman_run(image))
        finally:
            remove_leftovers(prefix)
            podman("rmi", "--force", image, check=False)
        return {
            "homeport median": statistics.median(taken),
            "homeport p95": percentile(taken, 0.95),
            "podman-compose up -d median": statistics.median(composed),
            "podman-compose up -d p95": percentile(composed, 0.95),
            "podman run median": statistics.median(ran),
        }


def _pushes(host: Machine, person: Person, count: int, file: Callable[[int], tuple[str, str]]) -> list[float]:
    taken = []
    for number in range(count):
        path, text = file(number)
        person.pull()
        person.write(path, text)
        person.commit()
        with _installed(host.at(host.url), Path(path).stem) as arrived:
            subprocess.run(
                ["git", "push", "--quiet", "origin", "HEAD:main"], cwd=person.folder, check=True, capture_output=True
            )
            pushed = time.perf_counter()
            taken.append(arrived() - pushed)
    return taken


@contextmanager
def _installed(central: Process, deployment_id: str) -> Iterator[Callable[[], float]]:
    """Listens to central's events before the push; gives the moment at which INSTALLED was read."""
    last = central.get("/api/v1/overview")["last_event_id"]
    stream = central.open(f"/api/v1/events?after={last}")
    moment: list[float] = []

    def listen() -> None:
        for line in stream:
            if not line.startswith(b"data:"):
                continue
            event: dict[str, Any] = json.loads(line[5:])
            if event["deployment_id"] == deployment_id and event["data"].get("state") == "INSTALLED":
                moment.append(time.perf_counter())
                return

    listener = threading.Thread(target=listen)
    listener.start()

    def arrived() -> float:
        listener.join(60)
        return moment[0]

    try:
        yield arrived
    finally:
        stream.close()


def compose_up(compose: Path, project: str) -> float:
    tool = [str(Path(COMMAND).with_name("podman-compose")), "--project-name", project, "--file", str(compose)]
    started = time.perf_counter()
    subprocess.run([*tool, "up", "-d"], check=True, capture_output=True, env=podman_environment())
    taken = time.perf_counter() - started
    subprocess.run([*tool, "down", "--timeout", "0"], check=True, capture_output=True, env=podman_environment())
    return taken


def _podman_run(image: str) -> float:
    started = time.perf_counter()
    container = podman("run", "--detach", image).strip()
    taken = time.perf_counter() - started
    podman("rm", "--force", "--time", "0", container)
    return taken


def await_site(host: Machine) -> None:
    """Until the site follows the repository: before that, its marker may still be on its way into Git."""
    while not any(site["applied_commit"] for site in host.json("sites", "list")["sites"]):
        time.sleep(0.1)


def own_repository(host: Machine) -> Path:
    return host.folder / "up" / "central" / "deployments.git"


def _pss(pid: int) -> float:
    """Of the process alone: what it shares counts in part, its children count for themselves."""
    return float(psutil.Process(pid).memory_full_info().pss) / 1e6


def _uss(pid: int) -> float:
    """What the process has for itself: neither what it shares nor what others have mapped changes this number."""
    return float(psutil.Process(pid).memory_full_info().uss) / 1e6


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
