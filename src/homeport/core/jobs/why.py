"""Why a job is as it is: the chain from its submission to what happens next, from its record."""

from collections.abc import Iterator

from homeport.core.jobs.job import ENDED, Job, JobSpec, JobType
from homeport.core.why import Decision
from homeport.vocabulary import JobState

DETAIL_MAX = 120


def why_job(job: Job) -> tuple[Decision, ...]:
    return (
        Decision("job", f"{job.created_by} submitted it", _content(job.spec), job.created_at),
        Decision(
            "site", f"it belongs to site {job.site}", "" if job.is_delivered else "its site has not taken it yet"
        ),
        *_asked(job),
        *_attempt(job),
        *_cancelled(job),
        Decision("next", _next(job)),
    )


def _content(spec: JobSpec) -> str:
    if spec.inference is not None:
        return f"it asks {spec.inference.model}: {spec.inference.prompt[:DETAIL_MAX]}"
    program = " ".join(spec.command)[:DETAIL_MAX] or "the command of its image"
    return f"it runs {program} in {spec.image}" if spec.type is JobType.CONTAINER else f"it runs {program}"


def _asked(job: Job) -> Iterator[Decision]:
    spec = job.spec
    asks = [f"node {spec.node}"] if spec.node is not None else []
    asks += [f"nodes with {spec.selector}"] if str(spec.selector) else []
    asks += [f"{spec.cpu_cores:g} cores"] if spec.cpu_cores else []
    asks += [f"{spec.memory_bytes / 2**20:g} MiB of memory"] if spec.memory_bytes else []
    asks += [f"{spec.gpus} GPUs"] if spec.gpus else []
    if asks:
        yield Decision("placement", f"it asks for {', '.join(asks)}")


def _attempt(job: Job) -> Iterator[Decision]:
    number = f"attempt {job.attempt} of {job.spec.retries + 1}"
    if job.attempt:
        why = job.reason if job.state is JobState.ASSIGNED else ""
        yield Decision("attempt", f"{number} was given to {job.place}", why, job.assigned_at)
    if job.started_at is not None:
        yield Decision("attempt", f"{number} began", f"it may take {job.spec.timeout_seconds:g} s", job.started_at)
    if job.failure is not None:
        yield Decision("attempt", f"{number} failed", str(job.failure))


def _cancelled(job: Job) -> Iterator[Decision]:
    if job.cancelled_by is not None:
        why = "" if job.state in ENDED else "it is stopped where it runs first"
        yield Decision("cancel", f"{job.cancelled_by} asked to cancel it", why)


def _next(job: Job) -> str:
    match job.state:
        case JobState.PENDING if job.not_before is not None:
            return f"the next attempt begins at {job.not_before:%H:%M:%S} or later: {job.reason}"
        case JobState.PENDING:
            return job.reason or "it is given to a node as soon as one has room"
        case JobState.ASSIGNED if job.node_id is None:
            return "an engine of its site answers it as soon as one has room"
        case JobState.ASSIGNED:
            return f"{job.node_id} pulls what it needs, and starts it"
        case JobState.RUNNING:
            return f"it ends by itself, or after {job.spec.timeout_seconds:g} s"
        case _:
            return f"nothing: it is {job.state}{f', {job.reason}' if job.reason else ''}"
