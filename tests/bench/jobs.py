"""Jobs per second on the null runtime: a site and its nodes in one process, from submission to the result in the
site's database."""

import time
from pathlib import Path

import anyio

from homeport.adapters.link.inprocess import InProcessLink
from homeport.adapters.runtime.fake import NullRuntime
from homeport.capability.site import SiteCapability, SitePart
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.core.jobs.job import JOB, JobSpec, JobType
from homeport.core.jobs.strategies import LeastLoaded
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.site.board import JobBoard, Submission
from homeport.jobs.site.live import LiveOutput
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.site.app import SiteApp, open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName
from tests.support.git import Person, bare_repository
from tests.support.waiting import eventually

NODES, JOBS, CLIENTS = 10, 2_000, 50
SPEC = JobSpec(JobType.CONTAINER, ("true",), "app:1")


def jobs_per_second(folder: Path) -> float:
    return anyio.run(_measure, folder)


async def _measure(folder: Path) -> float:
    made: list[JobBoard] = []

    def part(platform: SitePlatform) -> SitePart:
        live = LiveOutput()
        made.append(JobBoard(platform, LeastLoaded(), live))
        return SitePart(works={JOB: made[0]}, on_stream=live.take, loops=(made[0].run,))

    remote = bare_repository(folder / "deployments.git")
    person = Person(str(remote), folder / "person")
    person.write(marker_path(SiteName("home")), render_marker(SiteName("home")).decode())
    person.push("mark the site")
    settings = SiteSettings(
        name=SiteName("home"), data=folder / "site", git_url=str(remote), http_address=None, grpc_address=None
    )
    async with (
        open_site(settings, None, capabilities=[SiteCapability("jobs", part)]) as site,
        anyio.create_task_group() as tasks,
    ):
        for number in range(NODES):
            tasks.start_soon(_node, site, folder / f"n{number}", NodeId(f"n{number}"))
        await eventually(lambda: _able(site) == NODES)
        began = time.monotonic()
        async with anyio.create_task_group() as clients:
            for _ in range(CLIENTS):
                clients.start_soon(_client, made[0])
        await eventually(lambda: not made[0].open_count)
        seconds = time.monotonic() - began
        tasks.cancel_scope.cancel()
    return JOBS / seconds


async def _node(site: SiteApp, folder: Path, node_id: NodeId) -> None:
    settings = NodeSettings(data=folder, node_id=node_id, http_address=None, runtime="null")
    await run_node(settings, InProcessLink(site.parts.reception), NullRuntime(folder / "runtime"))


async def _client(board: JobBoard) -> None:
    for _ in range(JOBS // CLIENTS):
        await board.submit(Submission(SPEC, "bench"))


def _able(site: SiteApp) -> int:
    nodes = site.parts.conductor.memory.nodes.values()
    return sum(node.info.capabilities.engine == "null" for node in nodes)
