"""Log lines per second through one site to central, all three as separate processes."""

import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import anyio
import psutil

from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.logs.node.spool import IN_FLIGHT_MAX
from homeport.ports import Hello, LogLine, Logs, LogsStored
from tests.bench.home import await_site
from tests.support.builders import a_node
from tests.support.engines import probe_image
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.images import podman_environment
from tests.support.podman import podman
from tests.support.processes import Machine, machine, start_up
from tests.support.registry import running_registry

LINES = 100_000
SLOW_LINES, MANY_LINES = 50, 20_000
BATCH = 500
TEXT = "2026-11-17 12:00:00 GET /index.html 200 took 13 ms from 10.0.0.{number}, request {number}"

Numbers = dict[str, float]


def through_one_site() -> Numbers:
    """A program that speaks as a node sends lines as fast as its site acknowledges them."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder)) as host:
        fleet = Fleet(host, str(bare_repository(Path(folder) / "deployments.git")))
        central = psutil.Process(fleet.central().popen.pid)
        started = fleet.site("home")
        site = psutil.Process(started.popen.pid)
        before, began = {each: _cpu_seconds(each) for each in (site, central)}, time.monotonic()
        anyio.run(_send, fleet.grpc["home"], started.keys)
        stored = time.monotonic() - began
        while not _at_central(host, f"request {LINES}"):
            time.sleep(0.05)
        took = time.monotonic() - began
        return {
            "stored at the site": LINES / stored,
            "at central": LINES / took,
            "site CPU µs a line": 1e6 * (_cpu_seconds(site) - before[site]) / LINES,
            "central CPU µs a line": 1e6 * (_cpu_seconds(central) - before[central]) / LINES,
        }


def _cpu_seconds(process: psutil.Process) -> float:
    """What a busy machine does not distort; the site receives, stores and sends on every line within it."""
    return sum(process.cpu_times()[:2])


def beside_the_engine() -> Numbers:
    """A container of a job whose lines `homeport logs -f` reads at central, beside `podman logs -f` of the same
    container: how much later a line arrives, and how much longer many take."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with (
        tempfile.TemporaryDirectory() as folder,
        running_registry() as registry,
        probe_image(registry.host) as image,
        machine(Path(folder) / "host") as host,
    ):
        roles = psutil.Process(start_up(host, node=name).popen.pid)
        await_site(host)
        slow = _arrivals(host, image, SLOW_LINES, "sleep 0.2")
        begun = _cpu_seconds(roles)
        _arrivals(host, image, 1, ":")
        before = _cpu_seconds(roles)
        many = _arrivals(host, image, MANY_LINES, ":")
        of_the_job = before - begun
        used = _cpu_seconds(roles) - before - of_the_job
        later = [1000 * (slow[1][number] - slow[0][number]) for number in slow[0].keys() & slow[1].keys()]
        engine, ours = (max(each.values()) - min(each.values()) for each in many)
        return {
            "a line, ms after podman": statistics.median(later),
            "podman logs -f lines/s": MANY_LINES / engine,
            "homeport logs -f lines/s": MANY_LINES / ours,
            "CPU µs a line, node, site and central": 1e6 * used / MANY_LINES,
        }


def _arrivals(host: Machine, image: str, count: int, pause: str) -> tuple[dict[int, float], dict[int, float]]:
    """When each line has arrived: from Podman, and from central."""
    job = uuid.uuid4().hex[:8]
    script = f"sleep 3; i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo line $i; {pause}; done; sleep 1"
    # The script waits first, so that both read each line as it comes; `--since` for a line that already exists.
    environment = {**host.clean_environment(), "HOMEPORT_URL": host.url, "PYTHONUNBUFFERED": "1"}
    ours = [sys.executable, "-m", "homeport.cli", "logs", "-f", "--since", "10m", f"job/{job}"]
    with ThreadPoolExecutor() as threads:
        host.homeport("jobs", "run", "--detach", "--image", image, "--id", job, "--", "/bin/sh", "-c", script)
        followed = threads.submit(_read, ours, environment, count)
        found = host.wait_for(lambda: podman("ps", "--quiet", "--filter", f"label=homeport.job-run={job}.1").split())
        engine = _read(["podman", "logs", "-f", found[0]], podman_environment(), count)
        return engine, followed.result()


def _read(command: Sequence[str], environment: Mapping[str, str], count: int) -> dict[int, float]:
    found: dict[int, float] = {}
    with subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if "line " in text:
                found[int(text.split("line ")[-1].split()[0])] = time.monotonic()
            if count in found:
                break
        process.terminate()
    return found


async def _send(port: int, keys: Path) -> None:
    async with GrpcSiteLink("127.0.0.1", port, local_keys=keys).connect() as stream:
        await stream.send(Hello(a_node("flood").info, ()))
        messages = aiter(stream)
        await anext(messages)
        sent = stored = 0
        while stored < LINES:
            while sent < LINES and sent - stored < IN_FLIGHT_MAX * BATCH:
                numbers = range(sent + 1, sent + BATCH + 1)
                now = datetime.now(UTC)
                lines = tuple(
                    LogLine(now, f"job/{n % 20}", "info", TEXT.format(number=n), sequence=n) for n in numbers
                )
                await stream.send(Logs(lines, buffer="bench", previous=sent))
                sent += BATCH
            message = await anext(messages)
            if isinstance(message, LogsStored):
                stored = message.sequence


def _at_central(host: Machine, text: str, where: str = "site=home") -> bool:
    """Whether the newest line at central is the last one."""
    process = host.at(host.url)
    answer = process.get(f"/api/v1/logs?{where}&limit=20")
    return any(line["text"].endswith(text) for line in answer["lines"])
