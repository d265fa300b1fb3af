"""The event of a job's step, built alike at a site and at central."""

from datetime import datetime

from homeport.core.jobs.job import Job
from homeport.core.model.event import NewEvent, Subject
from homeport.vocabulary import EventKind, JobState, SubjectKind


def job_event(job: Job, before: JobState | None, now: datetime) -> NewEvent:
    """`before` is None for a job that was just submitted."""
    what = "was submitted" if before is None else f"is {job.state}"
    message = f"job {job.id} at {job.site} {what}{f': {job.reason}' if job.reason else ''}"
    return NewEvent(
        EventKind.JOB_STATE,
        now,
        message,
        site=job.site,
        node_id=job.node_id,
        data={
            "job_id": job.id,
            "before": None if before is None else before.value,
            "state": job.state.value,
            "attempt": job.attempt,
            "exit_code": job.exit_code,
            "reason": job.reason,
            "failure": None if job.failure is None else {"code": job.failure.code, "message": job.failure.message},
        },
        subject=Subject(SubjectKind.JOB, job.id),
    )
