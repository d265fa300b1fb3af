"""The chain of a job, as `homeport why job/ID` prints it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.jobs.why import why_job
from homeport.core.model.instance import Failure
from homeport.vocabulary import Code, JobId, JobState, NodeId, SiteName

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPEC = JobSpec(JobType.CONTAINER, ("train", "--all"), "app:1", gpus=1, memory_bytes=2**30, retries=1)
JOB = Job(JobId("one"), SiteName("home"), SPEC, JobState.PENDING, 1, NOW, "ann", NOW)


def lines(job: Job) -> list[str]:
    return [f"{each.step}: {each.what}{f' ({each.why})' if each.why else ''}" for each in why_job(job)]


def test_a_job_that_waits_says_what_for() -> None:
    assert lines(replace(JOB, reason="waits: every node that can run it is busy")) == [
        "job: ann submitted it (it runs train --all in app:1)",
        "site: it belongs to site home",
        "placement: it asks for 1024 MiB of memory, 1 GPUs",
        "next: waits: every node that can run it is busy",
    ]
    assert "site: it belongs to site home (its site has not taken it yet)" in lines(replace(JOB, is_delivered=False))


def test_a_retried_and_a_cancelled_job_tell_their_attempt() -> None:
    failed = replace(
        JOB,
        attempt=1,
        node_id=NodeId("n1"),
        assigned_at=NOW,
        started_at=NOW,
        failure=Failure(Code.EXITED, "it exited with code 3"),
        not_before=NOW + timedelta(seconds=5),
        reason="attempt 1 of 2 failed on n1",
    )
    assert lines(failed)[3:] == [
        "attempt: attempt 1 of 2 was given to n1",
        "attempt: attempt 1 of 2 began (it may take 3600 s)",
        f"attempt: attempt 1 of 2 failed ({failed.failure})",
        "next: the next attempt begins at 12:00:05 or later: attempt 1 of 2 failed on n1",
    ]
    cancelled = replace(failed, state=JobState.CANCELLED, cancelled_by="bob", reason="cancelled by bob")
    assert lines(cancelled)[-2:] == [
        "cancel: bob asked to cancel it",
        "next: nothing: it is CANCELLED, cancelled by bob",
    ]
