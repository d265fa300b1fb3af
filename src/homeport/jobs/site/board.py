"""All open jobs of a site: takes submissions, gives jobs to nodes, and takes what nodes report.

The site decides alone, with or without central. Everything is durable before it is answered or sent; one turn at a
time, so that a job has one next step. An attempt has a number (its generation): the result of another number changes
nothing, so a node that comes back late cannot add a second result.
"""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio

from homeport.core.jobs import steps
from homeport.core.jobs.job import ENDED, JOB, OPEN, Job, JobOutcome, JobOutput, JobSpec, JobType
from homeport.core.jobs.rules import check_job_id, check_spec
from homeport.core.jobs.schedule import (
    NO_FIT_HINT,
    NO_NODE,
    NO_NODE_HINT,
    SERVE_HINT,
    Load,
    is_gone,
    resources_of,
    schedule,
    unplaceable,
    unserved,
)
from homeport.core.jobs.strategies import Strategy
from homeport.core.model.demand import Resources
from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.model.instance import Failure
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.core.secrets import SecretValue, reference
from homeport.errors import (
    HomeportError,
    InvalidInput,
    NoNodeFits,
    NotFound,
    PermanentError,
    QueueFull,
    TransientError,
)
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.finding import same_job
from homeport.jobs.metrics import JobMetrics
from homeport.jobs.node.output import end_of
from homeport.jobs.site.answers import Answers
from homeport.jobs.site.inference import InferenceEnd, InferenceRuns
from homeport.jobs.site.live import LiveOutput
from homeport.jobs.site.record import WAITING_MAX, Changes, JobRecorder
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import JOBS, WHOLE, JobFilter
from homeport.vocabulary import (
    Actor,
    Code,
    DeploymentId,
    Digest,
    Generation,
    JobId,
    JobState,
    NodeId,
    OrderKind,
    ProfileType,
    Step,
)
from homeport.wire.jobs import outcome_from_bytes, spec_to_json

log = get_log(__name__)

QUEUE_MAX: Final = 10_000
"""Open jobs of a site; more are refused."""
GIVEN_MAX: Final = 200
"""Jobs given in one round, which is one transaction."""
ARRIVALS_MAX: Final = 200
SWEEP_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 1.0
STOP_AGAIN_SECONDS: Final = 30.0
"""After a node could not stop a job, since its engine does not answer, say. Its attempt's time is the bound."""
FOR_A_NODE: Final = "waits for a node"
FOR_AN_ENGINE: Final = "waits for an engine"
WAITING: Final = frozenset({JobState.PENDING, JobState.ASSIGNED})
HELD: Final = frozenset({JobState.ASSIGNED, JobState.RUNNING})
"""A node has it."""


@dataclass(frozen=True, slots=True)
class Submission:
    spec: JobSpec
    by: str
    id: JobId | None = None
    """Chosen by the client, so that it may submit again after an answer that was lost."""


@dataclass(slots=True, eq=False)
class _Arrival:
    """A submission whose caller waits."""

    submission: Submission
    job_id: JobId
    job: Job | None = None
    error: HomeportError | None = None


class JobBoard:
    def __init__(self, platform: SitePlatform, strategy: Strategy, live: LiveOutput) -> None:
        self._platform = platform
        self._strategy = strategy
        self.live = live
        self.metrics = JobMetrics()
        self._recorder = JobRecorder(platform)
        self._open: dict[JobId, Job] = {}
        """In the order of submission."""
        live.owner_of = self._owner_of
        self._answers = Answers(live, platform.clock, platform.put_lines)
        self._inference = InferenceRuns(platform, self._begun, self._answered, self._answers)
        self._arrivals: list[_Arrival] = []
        self._waiting: Mapping[JobId, str] = {}
        self._unstopped: dict[JobId, float] = {}
        """Cancelled jobs that their node could not stop, and when that is ordered again, on the monotonic clock. A
        node that reconnects is informed at once, so nothing of this has to be durable."""
        self._load = Load()
        self._lock = anyio.Lock()
        self._is_loaded = False
        self._bell = anyio.Event()
        self.reported = anyio.Event()
        """Set when there is something for central."""

    # --- for people and programs ------------------------------------------------------------------------------

    async def submit(self, submission: Submission) -> Job:
        """The job, durable. The same id with the same content is the same job. Raises InvalidInput, Conflict,
        NoNodeFits and QueueFull."""
        check_spec(submission.spec)
        if submission.id is not None:
            check_job_id(submission.id)
        arrival = _Arrival(submission, submission.id or JobId(self._platform.ids.new()))
        self._arrivals.append(arrival)
        try:
            async with self._turn():
                if arrival in self._arrivals:  # Else the turn of another one has taken it along.
                    arrivals = self._arrivals[:ARRIVALS_MAX]
                    await self._welcome(arrivals)
        finally:
            if arrival in self._arrivals:
                self._arrivals.remove(arrival)
        if arrival.error is not None:
            raise arrival.error
        assert arrival.job is not None, "an arrival has a job or an error"
        return arrival.job

    async def _welcome(self, arrivals: Sequence["_Arrival"]) -> None:
        """All in one transaction: a commit costs the same for one job as for a hundred."""
        async with self._platform.store.read() as reader:
            stored = await reader.jobs([(self._platform.site, each.job_id) for each in arrivals])
        known = {job.id: job for job in stored}
        new: dict[JobId, Job] = {}
        for each in arrivals:
            try:
                before = new.get(each.job_id) or self._open.get(each.job_id) or known.get(each.job_id)
                each.job = self._new_job(each, len(new)) if before is None else same_job(before, each.submission.spec)
                if before is None:
                    new[each.job_id] = each.job
            except (PermanentError, QueueFull) as error:
                each.error = error
        if new:
            await self._commit(Changes(new=list(new.values())))
        for each in arrivals:
            self._arrivals.remove(each)

    def _new_job(self, arrival: "_Arrival", others: int) -> Job:
        spec = arrival.submission.spec
        self._refuse_unplaceable(spec)
        if len(self._open) + others >= QUEUE_MAX:
            raise QueueFull(f"The site already has {len(self._open) + others} jobs that have not ended.")
        now = self._platform.clock.now()
        return Job(
            id=arrival.job_id,
            site=self._platform.site,
            spec=spec,
            state=JobState.PENDING,
            version=1,
            created_at=now,
            created_by=arrival.submission.by,
            updated_at=now,
            reason=FOR_A_NODE if spec.inference is None else FOR_AN_ENGINE,
        )

    async def cancel(self, job_id: JobId, by: str) -> Job:
        """Asks for it: a job that runs is stopped by its node first. Raises NotFound."""
        async with self._turn():
            job = await self._find(job_id)
            if job is None:
                raise NotFound(f'There is no job "{job_id}" at {self._platform.site}.')
            asked = steps.ask_to_cancel(job, by, self._platform.clock.now())
            if asked is None:
                return job
            if job.state is JobState.PENDING:
                pending = replace(asked, version=job.version)
                await self._commit(Changes(steps=[steps.cancel(pending, Actor.PERSON, asked.updated_at)]))
            else:
                await self._commit(Changes(quiet=[asked]))
                self._send_stop(asked)
            return await self._find(job_id) or job

    async def job(self, job_id: JobId) -> Job | None:
        async with self._turn():
            return await self._find(job_id)

    @property
    def open_count(self) -> int:
        """Jobs that have not ended."""
        return len(self._open)

    def shown(self, job: Job) -> Job:
        """With what a pending job waits for."""
        why = self._inference.waiting.get(job.id) if job.state is JobState.ASSIGNED else self._waiting.get(job.id)
        return replace(job, reason=f"waits: {why}") if why and job.state in WAITING else job

    def reserved(self) -> Iterable[tuple[NodeId, Resources]]:
        """What jobs take of the nodes that have them."""
        for job in self._open.values():
            if job.state is not JobState.PENDING and job.node_id is not None:
                yield job.node_id, resources_of(job.spec)

    # --- for central ------------------------------------------------------------------------------------------

    async def take_submitted(self, jobs: Sequence[Job]) -> None:
        """Jobs that were submitted at central. Those that are known already are reported again; those that do not fit
        into the queue stay at central."""
        async with self._turn():
            changes = Changes()
            for job in jobs:
                known = await self._find(job.id)
                if known is not None:
                    changes.again.append(known)
                elif len(self._open) + len(changes.new) < QUEUE_MAX:
                    changes.new.append(
                        replace(
                            job,
                            site=self._platform.site,
                            version=1,
                            state=JobState.PENDING,
                            reason=FOR_A_NODE if job.spec.inference is None else FOR_AN_ENGINE,
                            is_delivered=True,
                        )
                    )
            if changes:
                await self._commit(changes)

    async def position(self) -> int:
        """Of the last report to central."""
        async with self._turn():
            return self._recorder.position

    async def report_again(self, after: int) -> None:
        """After a restore from an older copy of the database: central has taken reports up to this position that are
        not in the copy. What waits is reported under new positions, and so is how open jobs stand."""
        async with self._turn():
            await self._recorder.renumber(after)
            if self._open:
                await self._commit(Changes(again=list(self._open.values())))

    async def known_open(self) -> list[JobId]:
        """The open jobs, and those that have ended without central knowing it."""
        async with self._turn(), self._platform.store.read() as reader:
            waiting = await reader.job_reports(after=0, limit=WAITING_MAX)
            return sorted({*self._open, *(JobId(json.loads(each.body)["job"]["id"]) for each in waiting)})

    # --- for nodes --------------------------------------------------------------------------------------------

    async def connected(self, node_id: NodeId, held: Sequence[Held]) -> None:
        """Sends what the node lacks, and stops what it should not have."""
        async with self._turn():
            there = {JobId(item.deployment_id): item for item in held}
            await self._recognise(node_id, there)
            mine = [
                job for job in self._open.values() if job.node_id == node_id and job.state is not JobState.PENDING
            ]
            forgotten = Changes()
            for job in mine:
                item = there.pop(job.id, None)
                if job.cancelled_by is not None:
                    self._send_stop(job)
                elif item is None and job.state is JobState.RUNNING:
                    # Sent again, its command would run twice, and only its author knows whether it may.
                    failure = Failure(Code.NODE_CRASHED, f"Node {node_id} has lost its record of the running job.")
                    forgotten.outcomes[job.id] = seen = self._seen(job)
                    forgotten.steps.append(steps.give_up(job, failure, self._platform.clock.now(), seen))
                elif item is None or item.generation < job.generation:
                    await self._send(job)
            if forgotten:
                await self._commit(forgotten)
            for job_id, item in there.items():
                if item.done:
                    continue  # Its result follows, and is acknowledged without effect.
                job_now = self._open.get(job_id)
                number = max(item.generation + 1, 0 if job_now is None else job_now.generation)
                self._platform.send(node_id, _stop_order(job_id, Generation(number), "it is not wanted here"))

    async def _recognise(self, node_id: NodeId, held: Mapping[JobId, Held]) -> None:
        """After a restore from an older copy of the database: what the node has heard since is believed."""
        now, changes = self._platform.clock.now(), Changes()
        for job_id, item in held.items():
            job = self._open.get(job_id)
            is_here = job is not None and (job.state is JobState.PENDING or job.node_id == node_id)
            if job is None or not is_here or job.cancelled_by is not None or not steps.is_lost(job, item.generation):
                continue
            known = steps.recognise if item.kind is OrderKind.APPLY else steps.stopped_by_lost_order
            made = known(job, node_id, item.generation, now)
            if isinstance(made, steps.JobStep):
                changes.steps.append(made)
            else:
                changes.quiet.append(made)
            log.warning("job taken over", job=job_id, node=node_id, order=item.kind.value, generation=item.generation)
        if changes:
            await self._commit(changes)

    async def take(self, news: Sequence[tuple[NodeId, Progress | Result]]) -> None:
        """Makes reports of nodes durable. Late ones, of attempts that were given up, change nothing."""
        async with self._turn():
            changes, after = Changes(), dict[JobId, Job]()
            for node_id, item in news:
                job = after.get(JobId(item.deployment_id)) or self._open.get(JobId(item.deployment_id))
                if job is None or job.node_id != node_id:
                    continue
                step = self._step(job, item, changes)
                if step is not None:
                    changes.steps.append(step)
                    after[job.id] = step.job
            if changes:
                await self._commit(changes)

    def _step(self, job: Job, item: Progress | Result, changes: Changes) -> steps.JobStep | None:
        now = self._platform.clock.now()
        if job.state not in (JobState.ASSIGNED, JobState.RUNNING):
            return None
        if isinstance(item, Progress):
            is_start = item.step is Step.STARTING and item.generation == job.generation
            return steps.start(job, item.at, now) if is_start else None
        if item.kind is OrderKind.REMOVE:
            return self._stopped(job, item, changes)
        if item.generation != job.generation:
            return None
        try:
            outcome = outcome_from_bytes(item.content)
        except InvalidInput as error:
            return steps.give_up(job, Failure(Code.INTERNAL, str(error)), now)
        failure = None if item.succeeded else item.failure or Failure(Code.INTERNAL, "the node gave no reason")
        changes.outcomes[job.id] = outcome
        return steps.finish(job, outcome, failure, Actor.NODE, now)

    def _stopped(self, job: Job, item: Result, changes: Changes) -> steps.JobStep | None:
        # A higher number is that of an order to stop it that an older copy of the database has lost.
        if job.cancelled_by is None or item.generation < job.cancel_generation:
            return None
        if not item.succeeded:
            self._unstopped[job.id] = self._platform.clock.monotonic() + STOP_AGAIN_SECONDS
            return None
        seen = changes.outcomes[job.id] = max(
            self._seen(job), _left(item), key=lambda outcome: outcome.output.bytes_total
        )
        return steps.cancel(job, Actor.NODE, self._platform.clock.now(), seen.output.bytes_total)

    def _seen(self, job: Job) -> JobOutcome:
        """What nodes have sent of the output of an attempt, for one whose end its node does not tell."""
        shown = self.live.end(job.id, job.generation)
        return JobOutcome() if shown is None else JobOutcome(output=JobOutput(end_of(shown.text), shown.next))

    # --- giving jobs to nodes ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """While the role runs. Without open jobs there is nothing to look after until the bell rings."""
        async with anyio.create_task_group() as tasks:
            self._inference.tasks = tasks
            tasks.start_soon(self._answers.run)
            await self._rounds()

    async def _rounds(self) -> None:
        while True:
            with anyio.move_on_after(SWEEP_SECONDS if self._open or not self._is_loaded else None):
                await self._bell.wait()
            self._bell = anyio.Event()
            try:
                await self.dispatch()
            except TransientError as error:
                log.warning("jobs not scheduled, will retry", why=str(error))
                await anyio.sleep(RETRY_SECONDS)

    async def dispatch(self) -> None:
        """One round: gives up what is lost, then gives pending jobs to nodes."""
        async with self._turn():
            self._stop_again()
            lost = self._lost()
            if lost:
                await self._commit(lost)
            await self._dispatch_inference()
            pending = self._due()
            if not pending:
                self._waiting = {}
                return
            nodes = list(self._platform.nodes().values())
            self._count_load()
            made = schedule(pending, nodes, self._taken(), self._load, self._strategy, limit=GIVEN_MAX)
            self._waiting = made.waiting
            if not made.given:
                return
            given = [(self._open[each.job_id], each.node_id, each.why) for each in made.given]
            changes, orders = await self._given(given)
            await self._commit(changes)
            for node_id, order in orders:
                self._platform.send(node_id, order)
            if len(made.given) >= GIVEN_MAX:
                self._bell.set()

    def _stop_again(self) -> None:
        moment = self._platform.clock.monotonic()
        for job_id in [job_id for job_id, due in self._unstopped.items() if due <= moment]:
            del self._unstopped[job_id]
            job = self._open.get(job_id)
            if job is not None and job.cancelled_by is not None and job.state in HELD:
                self._send_stop(job)

    def _lost(self) -> Changes:
        """Attempts on nodes that are gone, or that report nothing in time."""
        now, nodes, changes = self._platform.clock.now(), self._platform.nodes(), Changes()
        for job in self._open.values():
            if job.state is JobState.PENDING or job.node_id is None:
                continue
            failure = steps.overdue(job, now)
            if is_gone(nodes.get(job.node_id)):
                failure = Failure(Code.NODE_OFFLINE, f"Node {job.node_id} was lost while it had the job.")
            if failure is not None:
                stopped = replace(job, cancel_generation=steps.next_generation(job))
                changes.outcomes[job.id] = seen = self._seen(job)
                changes.steps.append(steps.give_up(stopped, failure, now, seen))
                self._platform.send(job.node_id, _stop_order(job.id, stopped.cancel_generation, "its time is over"))
        return changes

    def _due(self, *, is_inference: bool = False) -> list[Job]:
        now = self._platform.clock.now()
        return [
            job
            for job in self._open.values()
            if job.state is JobState.PENDING
            and (job.not_before is None or job.not_before <= now)
            and (job.spec.type is JobType.INFERENCE) is is_inference
        ]

    def _count_load(self) -> None:
        self._load.jobs.clear()
        self._load.cores.clear()
        for job in self._open.values():
            if job.state is not JobState.PENDING and job.node_id is not None:
                self._load.add(job.node_id, job.spec)

    def _taken(self) -> Iterable[tuple[NodeId, Resources]]:
        yield from self._platform.reserved()
        yield from self.reserved()

    async def _given(self, given: Sequence[tuple[Job, NodeId, str]]) -> tuple[Changes, list[tuple[NodeId, Order]]]:
        """A job whose secrets are missing fails instead."""
        now, changes = self._platform.clock.now(), Changes()
        orders: list[tuple[NodeId, Order]] = []
        for job, node_id, why in given:
            values = await self._secrets(job)
            missing = sorted(set(job.spec.secrets.values()) - values.keys())
            if missing:
                where = f"{self._platform.site} {missing[0]}"
                message = f'The site has no secret "{missing[0]}". Set it:  homeport secrets set {where}'
                changes.steps.append(steps.give_up(job, Failure(Code.SECRET_MISSING, message), now))
                continue
            step = steps.give(job, node_id, why, now)
            changes.steps.append(step)
            orders.append((node_id, _order(step.job, values)))
        return changes, orders

    # --- inference ---------------------------------------------------------------------------------------------

    async def _dispatch_inference(self) -> None:
        """The site asks its own engines. What is under way is looked at in each round, so after a restart too."""
        due = self._due(is_inference=True)[: self._inference.room]
        if due:
            now = self._platform.clock.now()
            await self._commit(Changes(steps=[steps.give(job, None, "they serve its model", now) for job in due]))
        for job in self._open.values():
            if job.spec.type is JobType.INFERENCE and job.state in HELD:
                self._inference.carry_on(job)

    async def _begun(self, job: Job) -> None:
        async with self._turn():
            now = self._platform.clock.now()
            found = self._attempt(job)
            step = None if found is None or found.cancelled_by is not None else steps.start(found, now, now)
            if step is not None:
                await self._commit(Changes(steps=[step]))

    async def _answered(self, job: Job, end: InferenceEnd) -> None:
        async with self._turn():
            found, now = self._attempt(job), self._platform.clock.now()
            if found is None:
                return
            again = steps.ask_again(found, now) if end.is_interrupted else None
            if again is not None:
                await self._commit(Changes(quiet=[again]))
                return
            outcome = end.outcome or JobOutcome()
            if not outcome.output.text:  # Of an answer that broke off, what there is of it is kept.
                outcome = replace(outcome, output=self._seen(found).output)
            if end.outcome is None:
                step = steps.cancel(found, Actor.SITE, now, outcome.output.bytes_total)
            else:
                step = steps.finish(found, outcome, end.failure, Actor.SITE, now, is_final=end.is_final)
            await self._commit(Changes(steps=[step], outcomes={job.id: outcome}))

    def _attempt(self, job: Job) -> Job | None:
        """As it is now; None where this attempt is no longer under way."""
        found = self._open.get(job.id)
        return found if found is not None and found.generation == job.generation and found.state in HELD else None

    # --- common -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One at a time. The first one reads what is stored."""
        async with self._lock:
            if not self._is_loaded:
                await self._recorder.load()
                async with self._platform.store.read() as reader:
                    found = await reader.page(JOBS, JobFilter(states=OPEN), replace(WHOLE, order="oldest"))
                self._open.update({job.id: job for job in found.items})
                self._is_loaded = True
            yield

    async def _commit(self, changes: Changes) -> None:
        await self._recorder.write(changes)
        self.metrics.ended(step.job for step in changes.steps)
        for job in changes.new:
            self.live.forget(job.id)
        for job in (*changes.new, *changes.quiet, *(step.job for step in changes.steps)):
            if job.state in ENDED:
                self._open.pop(job.id, None)
                self.live.ended(job.id, job.node_id)
            else:
                self._open[job.id] = job
        self.live.wake()
        self._bell.set()
        self.reported.set()
        if any(step.before in HELD and step.job.state not in HELD for step in changes.steps):
            self._platform.room_freed()

    def _owner_of(self, job_id: JobId) -> NodeId | None:
        job = self._open.get(job_id)
        return None if job is None else job.node_id

    async def _find(self, job_id: JobId) -> Job | None:
        if job_id in self._open:
            return self._open[job_id]
        async with self._platform.store.read() as reader:
            found = await reader.jobs([(self._platform.site, job_id)])
        return found[0] if found else None

    def _refuse_unplaceable(self, spec: JobSpec) -> None:
        if spec.inference is not None:
            pools = self._platform.inference.pools
            if not self._platform.inference.has_heard_of(self._platform.site):
                return
            serving = () if pools is None else pools.sites_serving(spec.inference.model)
            if (why := unserved(spec.inference, self._platform.site, serving)) is not None:
                raise NoNodeFits(why, hint=SERVE_HINT)
            return
        why = unplaceable(spec, list(self._platform.nodes().values()))
        if why is not None:
            raise NoNodeFits(why, hint=NO_NODE_HINT if why == NO_NODE else NO_FIT_HINT)

    async def _send(self, job: Job) -> None:
        assert job.node_id is not None, "a job that was given has a node"
        self._platform.send(job.node_id, _order(job, await self._secrets(job)))

    def _send_stop(self, job: Job) -> None:
        if job.spec.type is JobType.INFERENCE:
            self._inference.carry_on(job)
            return
        assert job.node_id is not None, "a job that was given has a node"
        reason = f"cancelled by {job.cancelled_by}"
        self._platform.send(job.node_id, _stop_order(job.id, job.cancel_generation, reason))

    async def _secrets(self, job: Job) -> Mapping[str, SecretValue]:
        names: Collection[str] = frozenset(job.spec.secrets.values())
        return await self._platform.reveal(names) if names else {}


def _left(item: Result) -> JobOutcome:
    """What a node tells of an attempt that it has stopped: nothing, where it did not run it itself."""
    try:
        return outcome_from_bytes(item.content)
    except InvalidInput:
        return JobOutcome()


def _order(job: Job, values: Mapping[str, SecretValue]) -> Order:
    """Secrets travel as those of a deployment do: sealed in the node's journal."""
    release = None
    if job.spec.secrets:
        part = ComponentSpec(
            name=JOB,
            type=ProfileType.CUSTOM,
            repository="",
            revision="",
            environment={variable: reference(name) for variable, name in job.spec.secrets.items()},
            secrets={name: value.version for name, value in values.items()},
            secret_values={name: value.value for name, value in values.items()},
        )
        release = Release(DeploymentId(job.id), job.id, Digest(""), "", (part,))
    return Order(
        job.generation,
        DeploymentId(job.id),
        OrderKind.APPLY,
        release,
        reason=job.reason,
        work=JOB,
        content=json.dumps(spec_to_json(job.spec)).encode(),
    )


def _stop_order(job_id: JobId, generation: Generation, reason: str) -> Order:
    return Order(generation, DeploymentId(job_id), OrderKind.REMOVE, None, reason=reason, work=JOB)
