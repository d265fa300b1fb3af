"""Jobs that are inference requests: the engines of their site answer them, through its task plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.engine.fake import FakeEngine
from homeport.capability.site import SiteCapability, SitePart
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.core.inference.request import InferenceRequest
from homeport.core.jobs.job import ENDED, Job, JobSpec, JobType
from homeport.core.jobs.steps import INTERRUPTED_MAX
from homeport.core.model.caller import Caller, Role
from homeport.errors import Conflict, NoNodeFits
from homeport.fleet.site.platform import SitePlatform
from homeport.inference.capability import SITE_INFERENCE
from homeport.inference.pools.registry import PoolRegistry
from homeport.jobs.ports import JobRequest, OutputPart
from homeport.jobs.site.board import JobBoard
from homeport.jobs.site.live import LiveOutput
from homeport.jobs.site.service import SiteJobs
from homeport.jobs.site.strategy import open_strategy
from homeport.ports import LogLine
from homeport.vocabulary import Code, JobId, JobState
from tests.integration.site.conftest import OpenSite
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ANN = Caller("ann", Role.OPERATOR)
POEM = InferenceRequest("words", "red blue", max_tokens=3)


class AskedSite:
    """A site whose only engine answers with the words that it was asked."""

    def __init__(self, platform: SitePlatform, board: JobBoard) -> None:
        self.platform = platform
        self.jobs = SiteJobs(platform, board)
        self.lines: list[LogLine] = []
        """What went to the site's log."""

    @property
    def engine(self) -> FakeEngine:
        assert isinstance(self.platform.inference.pools, PoolRegistry)
        found = self.platform.inference.pools.replicas()[0].engine
        assert isinstance(found, FakeEngine)
        return found

    async def submit(self, asked: InferenceRequest = POEM, job_id: str = "poem", **spec: Any) -> Job:
        wanted = JobSpec(JobType.INFERENCE, inference=asked, **spec)
        return await self.jobs.submit(JobRequest(wanted, JobId(job_id)), ANN)

    async def shown(self, job: Job, *, after: int = 0, generation: int = 0) -> OutputPart:
        return await self.jobs.output(job, after=after, generation=generation, wait_seconds=10)

    async def ended(self, job: Job) -> Job:
        found = await self.jobs.result(job, seconds=30)
        assert found.state in ENDED, found
        return found

    async def is_running(self, job: Job) -> bool:
        return (await self.jobs.find(job.id, ANN)).state is JobState.RUNNING and self.engine.running == 1


@asynccontextmanager
async def asked_site(start: OpenSite) -> AsyncIterator[AskedSite]:
    found: list[AskedSite] = []

    def part(platform: SitePlatform) -> SitePart:
        board = JobBoard(platform, open_strategy(""), LiveOutput())
        found.append(AskedSite(platform, board))
        return SitePart(loops=(board.run,), put_lines=found[0].lines.extend)

    async with start(capabilities=[SITE_INFERENCE, SiteCapability("jobs", part)]):
        pools = found[0].platform.inference.pools
        assert pools is not None
        model = HandoffModel("words")
        pools.bind(Handoff(engine=EngineName.FAKE, url="http://127.0.0.1:1", model=model, slots_total=1))
        yield found[0]


async def test_a_request_is_answered_by_an_engine_of_the_site_and_its_answer_is_kept(
    person: object, start: OpenSite
) -> None:
    async with asked_site(start) as site:
        job = await site.ended(await site.submit())
        assert (job.state, job.node_id, job.attempt) == (JobState.COMPLETED, None, 1), job
        assert job.reason == "2 tokens in, 3 out, on default/r0"
        output = await site.jobs.output(job, after=0, generation=0, wait_seconds=0)
        assert (output.text, output.is_complete) == ("red blue red \n", True)
        assert await site.submit() == job, "the same id and content is the same job"
        with pytest.raises(Conflict, match="runs something else"):
            await site.submit(InferenceRequest("words", "green"))
        with pytest.raises(NoNodeFits, match='No engine of site home serves the model "other"'):
            await site.submit(InferenceRequest("other", "red"), "next")


async def test_a_request_is_cancelled_and_frees_its_engine(person: object, start: OpenSite) -> None:
    async with asked_site(start) as site:
        site.engine.faults.hangs_before_first = True
        job = await site.submit()
        await eventually(lambda: site.is_running(job), what="the engine to be busy")
        waiting = await site.submit(job_id="behind-it")
        for each in (job, waiting):
            await site.jobs.cancel(each, ANN)
            assert (await site.ended(each)).reason == "cancelled by ann"
        await eventually(lambda: site.engine.running == 0, what="the engine to be free")


async def test_a_request_that_takes_too_long_fails_and_one_that_fails_is_asked_again(
    person: object, start: OpenSite
) -> None:
    async with asked_site(start) as site:
        site.engine.faults.hangs_before_first = True
        late = await site.ended(await site.submit(timeout_seconds=0.3))
        assert late.failure is not None
        assert (late.state, late.failure.code) == (JobState.FAILED, Code.TIMEOUT)
        await eventually(lambda: site.engine.running == 0, what="the engine to be free")
        again = await site.submit(job_id="again", timeout_seconds=0.5, retries=1)
        await eventually(lambda: site.is_running(again), what="the engine to be busy")
        site.engine.faults.hangs_before_first = False
        done = await site.ended(again)
        assert (done.state, done.attempt) == (JobState.COMPLETED, 2)


async def test_a_site_that_is_restarted_asks_again_and_the_job_has_one_result(
    person: object, start: OpenSite, tmp_path: Path
) -> None:
    async with asked_site(start) as site:
        site.engine.faults.hangs_before_first = True
        job = await site.submit()
        await eventually(lambda: site.is_running(job), what="the engine to be busy")
        first = (await site.shown(job)).generation
        doomed = await site.submit(job_id="doomed")
    async with asked_site(start) as site:
        await site.jobs.cancel(doomed, ANN)
        done = await site.ended(job)
        assert (done.state, done.attempt) == (JobState.COMPLETED, 1), "the engine was asked twice, the job ran once"
        kept = await site.shown(job, after=9, generation=first)
        assert (kept.start, kept.text) == (0, "red blue red \n"), "who follows the first answer gets the other whole"
        assert (await site.ended(doomed)).state is JobState.CANCELLED


async def test_an_answer_is_shown_while_it_is_written_and_its_lines_are_in_the_log(
    person: object, start: OpenSite
) -> None:
    async with asked_site(start) as site:
        site.engine.faults.token_seconds = 0.2
        job = await site.submit(InferenceRequest("words", "red\u00e9 blue", max_tokens=8))
        parts = [await site.shown(job)]
        while not parts[-1].is_complete:
            parts.append(await site.shown(job, after=parts[-1].next, generation=parts[-1].generation))
        assert sum(1 for part in parts if part.text and not part.is_complete) >= 3, "it comes piece by piece"
        assert "".join(part.text for part in parts) == "red\u00e9 blue " * 4 + "\n"
        assert [(line.source, line.text) for line in site.lines] == [(f"job/{job.id}", "red\u00e9 blue " * 4)]


async def test_what_there_is_of_an_answer_that_breaks_off_stays_with_the_job(person: object, start: OpenSite) -> None:
    async with asked_site(start) as site:
        site.engine.faults.token_seconds = 0.2
        endless = InferenceRequest("words", "red blue", max_tokens=200)
        late = await site.ended(await site.submit(endless, "late", timeout_seconds=0.7))
        assert late.state is JobState.FAILED
        assert (await site.shown(late)).text.startswith("red blue ")
        job = await site.submit(endless, "cancelled")
        seen = await site.shown(job)
        await site.jobs.cancel(job, ANN)
        assert (await site.ended(job)).state is JobState.CANCELLED
        assert (await site.shown(job)).text.startswith(seen.text)


async def test_an_engine_that_always_breaks_off_is_asked_again_a_few_times_and_each_answer_begins_anew(
    person: object, start: OpenSite
) -> None:
    async with asked_site(start) as site:
        site.engine.faults.dies_after = 1
        job = await site.ended(await site.submit())
        assert job.failure is not None
        assert (job.state, job.attempt, job.failure.code) == (JobState.FAILED, 1, "WORKER_RESET")
        assert job.generation == 1 + INTERRUPTED_MAX
        assert (await site.shown(job)).text == "red "
