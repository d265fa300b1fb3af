"""What its nodes cost a site: the process as a user starts it, and many streams that beat as real nodes do."""

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread
import psutil

from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.telemetry.metrics import METRICS
from homeport.ports import Beat, Hello, Sample, SiteLink, Stream, Telemetry
from homeport.vocabulary import SiteName
from tests.support.builders import a_node
from tests.support.git import Person, bare_repository
from tests.support.ports import free_port
from tests.support.processes import Machine, Process, machine

BEAT_SECONDS = 5.0
OPENING_MAX = 20
"""How many simulated nodes connect at once."""

Numbers = dict[str, float]


def beating_nodes(count: int = 300, *, seconds: float = 20.0, apps: int | None = None) -> Numbers:
    """The share of a core that `count` connected nodes cost their site, also as it would be for 1,000. With `apps`,
    each measures itself and so many containers every five seconds."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder)) as host:
        port = free_port()
        started = _site(host, Path(folder), port)
        process = psutil.Process(started.popen.pid)
        time.sleep(3)
        idle_memory, idle_cpu = _megabytes(process), _cpu_share(process, 5.0)
        share, memory = anyio.run(_measure, process, started.keys, port, count, seconds, apps)
        return {
            "idle MB": idle_memory,
            "idle CPU %": 100 * idle_cpu,
            f"{count} nodes CPU %": 100 * share,
            f"{count} nodes MB": memory,
            "1000 nodes CPU %": 100 * (idle_cpu + (share - idle_cpu) * 1000 / count),
        }


def _site(host: Machine, folder: Path, port: int) -> Process:
    remote = bare_repository(folder / "deployments.git")
    person = Person(str(remote), folder / "person")
    person.write(marker_path(SiteName("home")), render_marker(SiteName("home")).decode())
    person.push("mark the site")
    process = host.start(
        "site", "site", "--name", "home", "--git", str(remote), "--data", str(folder / "site"),
        "--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{port}",
    )  # fmt: skip
    process.wait_ready()
    return process


async def _measure(
    process: psutil.Process, keys: Path, port: int, count: int, seconds: float, apps: int | None
) -> tuple[float, float]:
    link, opening = GrpcSiteLink("127.0.0.1", port, local_keys=keys), anyio.Semaphore(OPENING_MAX)
    async with contextlib.AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        connected: list[int] = []
        for number in range(count):
            tasks.start_soon(_simulate, link, number, opening, connected, apps)
        while len(connected) < count:  # noqa: ASYNC110
            await anyio.sleep(0.1)
        await anyio.sleep(BEAT_SECONDS)
        share = await anyio.to_thread.run_sync(_cpu_share, process, seconds)
        memory = _megabytes(process)
        tasks.cancel_scope.cancel()
    return share, memory


async def _simulate(
    link: SiteLink, number: int, opening: anyio.Semaphore, connected: list[int], apps: int | None
) -> None:
    async with _opened(link, opening) as stream:
        await stream.send(Hello(a_node(f"node-{number}").info, ()))
        await anext(aiter(stream))
        connected.append(number)
        while True:
            await anyio.sleep(BEAT_SECONDS)
            measured = None if apps is None else Telemetry(datetime.now(UTC), _samples(number, apps))
            await stream.send(measured or Beat())  # Measurements say as much as a heartbeat.


def _samples(number: int, apps: int) -> tuple[Sample, ...]:
    """As a node sends them: the metrics of a machine without GPU and sensors, two for each container."""
    own = [name for name, metric in METRICS.items() if not metric.labels]
    values = [Sample(name, number + time.monotonic() % 100) for name in own]
    for app in range(apps):
        labels = {"deployment": f"deployment-{app}", "component": "web", "container": f"hp-{number}-{app}-web-1"}
        values += [Sample("container_cpu_percent", app * 1.5, labels), Sample("container_memory_bytes", 5e7, labels)]
    return tuple(values)


@contextlib.asynccontextmanager
async def _opened(link: SiteLink, opening: anyio.Semaphore) -> AsyncIterator[Stream]:
    async with contextlib.AsyncExitStack() as stack:
        async with opening:
            stream = await stack.enter_async_context(link.connect())
        yield stream


def _cpu_share(process: psutil.Process, seconds: float) -> float:
    def used() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    began, before = time.monotonic(), used()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def _megabytes(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / 2**20
