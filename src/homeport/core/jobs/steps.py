"""The steps of a job: each takes the job and what happened, and returns the job after it. All states come from the
table; a late or repeated report leaves the job as it is and returns None."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from homeport.core.jobs.job import ENDED, Job, JobArtifact, JobOutcome
from homeport.core.jobs.lifecycle import JOB_STATES
from homeport.core.lifecycle.machine import Stale
from homeport.core.model.instance import Failure
from homeport.core.values.backoff import BackoffPolicy, chance_of
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Actor, Code, Generation, JobState, JobTrigger, NodeId

RETRY: Final = BackoffPolicy(first_seconds=1.0, max_seconds=60.0)
PREPARE_SECONDS_MAX: Final = 3600.0
"""How long pulling an image may take: an hour allows a large one on a slow line."""
OVERDUE_SECONDS: Final = 120.0
"""How long after its deadline the result of an attempt may arrive from a connected node."""
INTERRUPTED_MAX: Final = 5
"""How often an attempt of an inference job continues after a restart."""
LOST_ORDERS_MAX: Final = 10_000
"""A node that claims to have had more orders than this since the site's newest one is not believed."""
FINAL_CODES: Final[frozenset[str]] = frozenset(
    {Code.NOT_ALLOWED, Code.SECRET_MISSING, Code.INVALID_ORDER, Code.UNSUPPORTED_TYPE, Code.NO_ELIGIBLE_NODE}
)
"""Failures that another attempt would only repeat."""


@dataclass(frozen=True, slots=True)
class JobStep:
    """One change of a job, for its event."""

    job: Job
    before: JobState
    trigger: JobTrigger
    actor: Actor


def give(job: Job, node_id: NodeId | None, why: str, now: datetime) -> JobStep:
    """A new attempt: its number fences off the results of those before it. Without a node its site runs it."""
    given = replace(
        job,
        attempt=job.attempt + 1,
        generation=next_generation(job),
        node_id=node_id,
        assigned_at=now,
        started_at=None,
        not_before=None,
        failure=None,
        exit_code=None,
    )
    given = replace(given, reason=f"given to {given.place}: {why}")
    return _stepped(job, given, JobTrigger.ASSIGNED, Actor.SITE, now)


def start(job: Job, at: datetime, now: datetime) -> JobStep | None:
    actor = Actor.SITE if job.node_id is None else Actor.NODE
    if isinstance(JOB_STATES.step(job.state, JobTrigger.STARTED, actor), Stale):
        return None
    running = replace(job, started_at=at, reason=f"runs on {job.place}")
    return _stepped(job, running, JobTrigger.STARTED, actor, now)


def ask_again(job: Job, now: datetime) -> Job | None:
    """A question that a restart has interrupted, within the same attempt: its answer begins again, under another
    number. None where that has happened often enough, or it is being cancelled."""
    if job.cancelled_by is not None or job.generation - job.attempt >= INTERRUPTED_MAX * job.attempt:
        return None
    reason = "is retried: a restart of the site or of the engine has interrupted the answer"
    return replace(job, generation=next_generation(job), version=job.version + 1, updated_at=now, reason=reason)


def finish(
    job: Job, outcome: JobOutcome, failure: Failure | None, actor: Actor, now: datetime, *, is_final: bool = False
) -> JobStep:
    """The end of the newest attempt: the job has completed, is retried, or has failed. `is_final` where another
    attempt would only fail again."""
    ended = replace(
        job,
        failure=failure,
        exit_code=outcome.exit_code,
        started_at=outcome.started_at or job.started_at,
        output_bytes=outcome.output.bytes_total,
        files=tuple(JobArtifact(file.path, len(file.content)) for file in outcome.files),
    )
    if failure is None:
        done = replace(ended, finished_at=outcome.finished_at or now, reason=outcome.note)
        return _stepped(job, done, JobTrigger.SUCCEEDED, actor, now)
    if job.cancelled_by is not None:
        return cancel(ended, actor, now)
    left = job.spec.retries + 1 - job.attempt
    if left > 0 and not is_final and failure.code not in FINAL_CODES:
        delay = RETRY.delay_seconds(job.attempt, chance=chance_of(f"{job.id}/{job.attempt}"))
        again = replace(
            ended,
            not_before=now + timedelta(seconds=delay),
            reason=f"attempt {job.attempt} of {job.spec.retries + 1} failed on {job.place}: {failure}",
        )
        return _stepped(job, again, JobTrigger.RETRIED, Actor.SITE, now)
    attempts = f" after {job.attempt} attempts" if job.attempt > 1 else ""
    failed = replace(ended, finished_at=outcome.finished_at or now, reason=f"failed{attempts}: {failure}")
    return _stepped(job, failed, JobTrigger.GAVE_UP, actor, now)


def give_up(job: Job, failure: Failure, now: datetime, outcome: JobOutcome | None = None) -> JobStep:
    """Before any attempt, or without the node; `outcome` is what was seen of the attempt."""
    return finish(job, outcome or JobOutcome(), failure, Actor.SITE, now)


def lose(job: Job, why: str, now: datetime) -> JobStep:
    """For central: the site of the job will say nothing more about it."""
    lost = replace(job, finished_at=now, reason=why, failure=Failure(Code.INTERNAL, why))
    return _stepped(job, lost, JobTrigger.GAVE_UP, Actor.CENTRAL, now)


def ask_to_cancel(job: Job, by: str, now: datetime) -> Job | None:
    """A job that a node has is stopped there first; its state changes with the node's answer. None for a repeat."""
    if job.cancelled_by is not None or job.state in ENDED:
        return None
    return replace(
        job,
        cancelled_by=by,
        cancel_generation=next_generation(job),
        version=job.version + 1,
        updated_at=now,
        reason=f"is being cancelled by {by}",
    )


def cancel(job: Job, actor: Actor, now: datetime, output_bytes: int | None = None) -> JobStep:
    """`output_bytes` of the newest attempt, where they are not known yet."""
    size = job.output_bytes if output_bytes is None else output_bytes
    gone = replace(job, finished_at=now, reason=f"cancelled by {job.cancelled_by}", output_bytes=size)
    return _stepped(job, gone, JobTrigger.CANCELLED, actor, now)


def next_generation(job: Job) -> Generation:
    return Generation(max(job.generation, job.cancel_generation) + 1)


def is_lost(job: Job, number: Generation) -> bool:
    """Whether a node holds an order with a number that the site has not given: its database is an older copy, for
    only the site gives numbers."""
    newest = max(job.generation, job.cancel_generation)
    return newest < number <= newest + LOST_ORDERS_MAX


def recognise(job: Job, node_id: NodeId, number: Generation, now: datetime) -> JobStep | Job:
    """A node has a newer attempt than the site remembers: that is the newest one, and its result counts."""
    if job.state is JobState.PENDING:
        given = give(job, node_id, "it has the job already", now)
        return replace(given, job=replace(given.job, generation=number))
    reason = f"{node_id} has a newer attempt than the site remembers"
    return replace(job, generation=number, assigned_at=now, version=job.version + 1, updated_at=now, reason=reason)


def stopped_by_lost_order(job: Job, node_id: NodeId, number: Generation, now: datetime) -> JobStep | Job:
    """A node was ordered to stop a job by an order that the site has lost. How far its attempt had come is unknown,
    so it counts as one; the next has a higher number."""
    raised = replace(job, generation=number)
    if job.state is JobState.PENDING:
        return replace(raised, version=job.version + 1, updated_at=now)
    why = f"Node {node_id} was ordered to stop the job by an order that the site has lost."
    return give_up(raised, Failure(Code.INTERNAL, why), now)


def overdue(job: Job, now: datetime) -> Failure | None:
    """For an attempt whose node is connected and has reported no end in time."""
    if job.assigned_at is None or job.state not in (JobState.ASSIGNED, JobState.RUNNING):
        return None
    since = job.started_at or job.assigned_at + timedelta(seconds=PREPARE_SECONDS_MAX)
    if now < since + timedelta(seconds=job.spec.timeout_seconds + OVERDUE_SECONDS):
        return None
    return Failure(Code.TIMEOUT, f"Node {job.node_id} has reported no result in time.")


def _stepped(before: Job, after: Job, trigger: JobTrigger, actor: Actor, now: datetime) -> JobStep:
    """Raises IllegalTransition where the table has no row."""
    verdict = JOB_STATES.step(before.state, trigger, actor)
    changed = replace(after, state=verdict.state, version=before.version + 1, updated_at=now)
    return JobStep(changed, before.state, trigger, actor)
