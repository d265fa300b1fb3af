"""What a node knows of a job and its site does not: a stop that failed, and orders that an older copy of the site's
database has lost. Without that, a job would wait for the end of its time."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from homeport.capability.site import SiteCapability, SitePart
from homeport.core.jobs.job import JOB, Job, JobOutcome, JobSpec, JobType
from homeport.core.model.instance import Failure
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.site import board as boards
from homeport.jobs.site.board import JobBoard, Submission
from homeport.jobs.site.live import LiveOutput
from homeport.jobs.site.strategy import open_strategy
from homeport.vocabulary import Code, DeploymentId, Generation, JobId, JobState, NodeId, OrderKind, Step
from homeport.wire.jobs import outcome_to_bytes
from tests.integration.site.conftest import OpenSite
from tests.support.builders import a_node

pytestmark = pytest.mark.anyio

ONE = NodeId("one")
JOB_ID = JobId("j")
SPEC = JobSpec(JobType.CONTAINER, image="app:1")
UNREACHABLE = Failure(Code.ENGINE_UNREACHABLE, "The container engine does not answer.")


@dataclass
class Jobs:
    """A board on a real store, with one node of which only the orders are seen."""

    board: JobBoard
    sent: list[Order] = field(default_factory=list)

    async def given(self) -> Job:
        await self.board.submit(Submission(SPEC, "ann", JOB_ID))
        await self.board.dispatch()
        return await self.now()

    async def now(self) -> Job:
        job = await self.board.job(JOB_ID)
        assert job is not None
        return job

    async def hear(self, kind: OrderKind, generation: int, failure: Failure | None = None) -> None:
        content = outcome_to_bytes(JobOutcome(exit_code=0))
        at, key = datetime.now(UTC), DeploymentId(JOB_ID)
        result = Result(key, Generation(generation), kind, failure is None, at, failure, work=JOB, content=content)
        await self.board.take([(ONE, result)])


OpenBoard = Callable[[], AbstractAsyncContextManager[Jobs]]


@pytest.fixture
def opened(person: object, start: OpenSite) -> OpenBoard:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Jobs]:
        made: list[Jobs] = []

        def part(platform: SitePlatform) -> SitePart:
            sent: list[Order] = []
            seen = replace(platform, send=lambda _, order: sent.append(order), nodes=lambda: {ONE: a_node("one")})
            made.append(Jobs(JobBoard(seen, open_strategy(""), LiveOutput()), sent))
            return SitePart(works={JOB: made[0].board})

        async with start(capabilities=[SiteCapability("jobs", part)]):
            yield made[0]

    return opened


def held(kind: OrderKind, generation: int, *, done: bool = False) -> Held:
    return Held(DeploymentId(JOB_ID), Generation(generation), kind, None, done=done, work=JOB)


async def test_a_stop_that_its_node_could_not_carry_out_is_ordered_again(
    opened: OpenBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "STOP_AGAIN_SECONDS", 0.0)
    async with opened() as jobs:
        await jobs.given()
        asked = await jobs.board.cancel(JOB_ID, "ben")
        await jobs.hear(OrderKind.REMOVE, asked.cancel_generation, UNREACHABLE)
        await jobs.board.dispatch()
        assert [order.kind for order in jobs.sent] == [OrderKind.APPLY, OrderKind.REMOVE, OrderKind.REMOVE]
        await jobs.board.dispatch()
        assert len(jobs.sent) == 3, "once for each answer"
        await jobs.hear(OrderKind.REMOVE, jobs.sent[-1].generation)
        assert (await jobs.now()).state is JobState.CANCELLED


@pytest.mark.parametrize("is_given", [True, False], ids=["given", "pending"])
async def test_the_result_of_an_attempt_that_an_older_copy_has_lost_counts(opened: OpenBoard, is_given: bool) -> None:
    async with opened() as jobs:
        await (jobs.given() if is_given else jobs.board.submit(Submission(SPEC, "ann", JOB_ID)))
        await jobs.board.connected(ONE, [held(OrderKind.APPLY, 3, done=True)])
        assert (await jobs.now()).generation == 3
        await jobs.hear(OrderKind.APPLY, 3)
        assert (await jobs.now()).state is JobState.COMPLETED


async def test_a_job_that_runs_is_not_begun_again_on_a_node_that_has_lost_its_record(opened: OpenBoard) -> None:
    """Its folder was put back from an older copy, say. What it never heard of is sent."""
    async with opened() as jobs:
        given = await jobs.given()
        await jobs.board.connected(ONE, [])
        assert [order.generation for order in jobs.sent] == [given.generation] * 2
        started = Progress(
            DeploymentId(JOB_ID), given.generation, Step.STARTING, "", "started", given.updated_at, work=JOB
        )
        await jobs.board.take([(ONE, started)])
        await jobs.board.connected(ONE, [])
        found = await jobs.now()
        assert (found.state, len(jobs.sent)) == (JobState.FAILED, 2)
        assert "has lost its record" in found.reason


async def test_a_job_that_a_lost_order_has_stopped_says_so(opened: OpenBoard) -> None:
    async with opened() as jobs:
        await jobs.given()
        await jobs.board.connected(ONE, [held(OrderKind.REMOVE, 3, done=True)])
        found = await jobs.now()
        assert found.state is JobState.FAILED
        assert "an order that the site has lost" in found.reason


async def test_a_cancelled_job_ends_with_the_stop_that_an_older_copy_has_lost(opened: OpenBoard) -> None:
    async with opened() as jobs:
        await jobs.given()
        asked = await jobs.board.cancel(JOB_ID, "ben")
        await jobs.hear(OrderKind.REMOVE, asked.cancel_generation + 1)
        assert (await jobs.now()).state is JobState.CANCELLED
