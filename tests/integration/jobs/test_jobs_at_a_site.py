"""Jobs at a site without central: durable, retried, cancelled, and each with one result."""

from collections import Counter

import anyio
import pytest

from homeport.core.jobs.job import ENDED, Job, JobType
from homeport.core.model.caller import INTERNAL
from homeport.errors import Conflict, InvalidInput, NoNodeFits, QueueFull
from homeport.jobs.site import board as boards
from homeport.vocabulary import Code, EventKind, JobState
from tests.integration.jobs.conftest import JobSite, OpenJobs
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NODES = [f"n{number}" for number in range(10)]


async def _completions(site: JobSite) -> Counter[str]:
    """How often the log says that each job has ended."""
    found: Counter[str] = Counter()
    after = 0
    async with site.store.read() as reader:
        while events := await reader.events(after=after, limit=1000):
            after = events[-1].id
            found.update(
                str(each.event.data["job_id"])
                for each in events
                if each.event.kind is EventKind.JOB_STATE and JobState(each.event.data["state"]) in ENDED
            )
    return found


async def test_a_thousand_jobs_on_ten_nodes_each_run_once_and_none_is_lost(job_site: OpenJobs) -> None:
    async with job_site(*NODES) as site:
        async with anyio.create_task_group() as clients:
            for number in range(1000):
                clients.start_soon(site.submit, f"j{number}")
        await eventually(lambda: not site.board.open_count, what="all jobs to end")
        found = await site.all()
        assert len(found) == 1000
        assert {job.state for job in found} == {JobState.COMPLETED}
        assert set(site.starts()) == {f"j{number}.1" for number in range(1000)}
        assert set(site.starts().values()) == {1}
        assert {job.node_id for job in found} == set(NODES), "every node has had some"
        assert set((await _completions(site)).values()) == {1}


async def test_output_exit_code_and_timing_are_kept(job_site: OpenJobs) -> None:
    async with job_site("one") as site:
        job = await site.ended(await site.submit(command=("say", "hi"), environment={"HOMEPORT_NULL_EXIT": "3"}))
        assert (job.state, job.exit_code, job.attempt) == (JobState.FAILED, 3, 1)
        assert job.failure is not None
        assert job.failure.code == Code.EXITED
        assert job.created_at <= job.assigned_at <= job.finished_at  # type: ignore[operator]
        part = await site.jobs.output(job, after=0, generation=0, wait_seconds=0)
        assert (part.text, part.is_complete) == ("say hi\n", True)
        again = await site.jobs.output(job, after=part.next, generation=part.generation, wait_seconds=0)
        assert again.text == ""


async def test_a_failed_job_is_retried_as_often_as_it_asks(job_site: OpenJobs) -> None:
    async with job_site("one") as site:
        job = await site.ended(await site.submit("again", retries=1, environment={"HOMEPORT_NULL_EXIT": "1"}))
        assert (job.state, job.attempt) == (JobState.FAILED, 2)
        assert len(site.starts()) == 2


async def test_the_same_id_with_the_same_content_is_the_same_job(job_site: OpenJobs) -> None:
    async with job_site("one") as site:
        first = await site.ended(await site.submit("mine"))
        assert await site.submit("mine") == first
        with pytest.raises(Conflict, match="runs something else"):
            await site.submit("mine", command=("other",))
        assert sum(site.starts().values()) == 1


async def test_a_job_larger_than_any_node_is_refused_with_what_each_lacks(job_site: OpenJobs) -> None:
    async with job_site("one") as site:
        with pytest.raises(NoNodeFits, match="one needs 1Pi of memory, has"):
            await site.submit(memory_bytes=2**50)
        with pytest.raises(InvalidInput, match="give the model and the prompt"):
            await site.submit(type=JobType.INFERENCE)
        assert await site.all() == []


async def test_where_there_is_no_node_it_says_how_one_joins(job_site: OpenJobs) -> None:
    async with job_site() as site:
        with pytest.raises(NoNodeFits) as refused:
            await site.submit()
        assert (str(refused.value), refused.value.hint) == (
            "The site has no node.",
            "Join one:  homeport nodes join-command",
        )


async def test_a_full_queue_refuses_and_loses_nothing(job_site: OpenJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "QUEUE_MAX", 2)
    async with job_site("one") as site:
        waiting = [await site.submit(environment={"HOMEPORT_NULL_SECONDS": "600"}) for _ in range(2)]
        with pytest.raises(QueueFull, match="2 jobs"):
            await site.submit()
        for job in waiting:
            await site.jobs.cancel(job, INTERNAL)
        await eventually(lambda: not site.board.open_count)
        assert (await site.ended(await site.submit())).state is JobState.COMPLETED


async def test_a_running_job_is_stopped_and_a_pending_one_is_dropped(job_site: OpenJobs) -> None:
    async with job_site("one") as site:
        running = await site.submit(environment={"HOMEPORT_NULL_SECONDS": "600"})
        await eventually(lambda: _has_printed(site, running))
        pending = await site.submit(node="one", cpu_cores=0.0, environment={"HOMEPORT_NULL_SECONDS": "600"})
        for job in (running, pending):
            await site.jobs.cancel(job, INTERNAL)
            ended = await site.ended(job)
            assert (ended.state, ended.cancelled_by) == (JobState.CANCELLED, "homeport")
        assert await _kept(site, running) == "echo hi\n", "what it has printed stays"


async def test_a_job_over_its_time_is_killed(job_site: OpenJobs) -> None:
    async with job_site("one") as site:
        job = await site.submit(timeout_seconds=0.2, environment={"HOMEPORT_NULL_SECONDS": "600"})
        ended = await site.ended(job)
        assert ended.state is JobState.FAILED
        assert ended.failure is not None
        assert ended.failure.code == Code.TIMEOUT


async def test_a_lost_node_leads_to_a_retry_elsewhere_and_its_late_result_changes_nothing(job_site: OpenJobs) -> None:
    quick = {"heartbeat_seconds": 0.2, "stale_seconds": 0.6, "lost_seconds": 1.2, "sweep_seconds": 0.1}
    async with job_site("one", **quick) as site:
        job = await site.submit("moving", retries=1, environment={"HOMEPORT_NULL_SECONDS": "3"})
        await eventually(lambda: site.board._open[job.id].state is JobState.RUNNING)
        site.scopes["one"].cancel()
        await site.node("two")
        ended = await site.ended(job)
        assert (ended.state, ended.node_id, ended.attempt) == (JobState.COMPLETED, "two", 2)
        await site.node("one")  # It finds its attempt, which has ended by now, and reports it.
        await eventually(lambda: _is_empty(site, "one"), what="the late node to forget the job")
        assert (await _completions(site))["moving"] == 1
        (again,) = await site.all()
        assert again == ended


async def test_without_retries_a_lost_node_is_a_failure_with_the_reason(job_site: OpenJobs) -> None:
    quick = {"heartbeat_seconds": 0.2, "stale_seconds": 0.6, "lost_seconds": 1.2, "sweep_seconds": 0.1}
    async with job_site("one", **quick) as site:
        job = await site.submit(environment={"HOMEPORT_NULL_SECONDS": "600"})
        await eventually(lambda: _has_printed(site, job))
        site.scopes["one"].cancel()
        ended = await site.ended(job)
        assert ended.state is JobState.FAILED
        assert ended.reason == "failed: Node one was lost while it had the job (NODE_OFFLINE)"
        assert await _kept(site, job) == "echo hi\n"


def _has_printed(site: JobSite, job: Job) -> bool:
    is_running = site.board._open[job.id].state is JobState.RUNNING
    return is_running and site.board.live.read(job.id, 1, 0) is not None


async def _kept(site: JobSite, job: Job) -> str:
    return (await site.jobs.output(job, after=0, generation=0, wait_seconds=0)).text


def _is_empty(site: JobSite, name: str) -> bool:
    """Whether a node has nothing left of any job."""
    lines = (site.folder / name / "runtime" / "jobs.jsonl").read_text().splitlines()
    return '"remove"' in lines[-1]


async def test_deployments_see_what_jobs_have_reserved_until_they_end(job_site: OpenJobs) -> None:
    async with job_site("one") as site:
        view = site.app.parts.conductor.memory.view
        assert not view().others
        job = await site.submit(memory_bytes=2**28, environment={"HOMEPORT_NULL_SECONDS": "60"})
        await eventually(lambda: view().others, what="the job to take its room")
        ((node_id, taken),) = view().others
        assert (node_id, taken.memory_bytes) == ("one", 2**28)
        await site.jobs.cancel(job, INTERNAL)
        await eventually(lambda: not view().others, what="the room to be free")
