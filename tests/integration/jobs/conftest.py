"""A site with jobs, on a real store and a real repository, and nodes of the null runtime in the same process."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from homeport.adapters.link.inprocess import InProcessLink
from homeport.adapters.runtime.fake import NullRuntime
from homeport.capability.site import SiteCapability, SitePart
from homeport.core.jobs.job import ENDED, JOB, Job, JobSpec, JobType
from homeport.core.model.caller import INTERNAL
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.ports import JobRequest
from homeport.jobs.site.board import JobBoard
from homeport.jobs.site.live import LiveOutput
from homeport.jobs.site.service import SiteJobs
from homeport.jobs.site.strategy import open_strategy
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.ports import JOBS, WHOLE, JobFilter, Store
from homeport.site.app import SiteApp
from homeport.vocabulary import JobId, Liveness, NodeId
from tests.e2e.conftest import host, node_prefix
from tests.integration.site.conftest import OpenSite, person, remote, start
from tests.support.waiting import eventually

__all__ = ["host", "node_prefix", "person", "remote", "start"]


@dataclass
class JobSite:
    """The jobs of one site, and its nodes."""

    app: SiteApp
    jobs: SiteJobs
    board: JobBoard
    store: Store
    folder: Path
    tasks: TaskGroup
    scopes: dict[str, anyio.CancelScope] = field(default_factory=dict)

    async def node(self, name: str) -> None:
        """Starts a node, or starts it again."""
        settings = NodeSettings(data=self.folder / name, node_id=NodeId(name), http_address=None, runtime="null")
        scope = self.scopes[name] = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await run_node(
                    settings, InProcessLink(self.app.parts.reception), NullRuntime(settings.data / "runtime")
                )

        self.tasks.start_soon(run)
        await eventually(lambda: self._is_live(NodeId(name)), what=f"node {name} to be live")

    def _is_live(self, node_id: NodeId) -> bool:
        node = self.app.parts.conductor.memory.nodes.get(node_id)
        engine = "" if node is None else node.info.capabilities.engine
        return node is not None and node.liveness is Liveness.LIVE and engine == "null"

    async def submit(self, job_id: str = "", **spec: Any) -> Job:
        wanted = JobSpec(**{"type": JobType.CONTAINER, "image": "app:1", "command": ("echo", "hi"), **spec})
        return await self.jobs.submit(JobRequest(wanted, JobId(job_id) if job_id else None), INTERNAL)

    async def ended(self, job: Job) -> Job:
        found = await self.jobs.result(job, seconds=60)
        assert found.state in ENDED, found
        return found

    async def all(self) -> list[Job]:
        async with self.store.read() as reader:
            return list((await reader.page(JOBS, JobFilter(), WHOLE)).items)

    def starts(self) -> Counter[str]:
        """How often each attempt was started, on all nodes."""
        found: Counter[str] = Counter()
        for path in self.folder.glob("*/runtime/jobs.jsonl"):
            found.update(
                body["id"] for what, body in map(json.loads, path.read_text().splitlines()) if what == "start"
            )
        return found


OpenJobs = Callable[..., AbstractAsyncContextManager[JobSite]]


@pytest.fixture
def job_site(person: object, start: OpenSite, tmp_path: Path) -> OpenJobs:
    @asynccontextmanager
    async def opened(*nodes: str, strategy: str = "", **settings: Any) -> AsyncIterator[JobSite]:
        made: list[tuple[SiteJobs, JobBoard, SitePlatform]] = []

        def part(platform: SitePlatform) -> SitePart:
            live = LiveOutput()
            board = JobBoard(platform, open_strategy(strategy), live)
            made.append((SiteJobs(platform, board), board, platform))
            return SitePart(works={JOB: board}, on_stream=live.take, loops=(board.run,), reserved=board.reserved)

        async with (
            start(capabilities=[SiteCapability("jobs", part)], **settings) as app,
            anyio.create_task_group() as tasks,
        ):
            ((jobs, board, platform),) = made
            site = JobSite(app, jobs, board, platform.store, tmp_path / "nodes", tasks)
            for name in nodes:
                await site.node(name)
            yield site
            tasks.cancel_scope.cancel()

    return opened
