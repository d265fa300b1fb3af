"""Retries, time limits and cancelling: what follows each step of a job."""

from dataclasses import replace
from datetime import timedelta

from homeport.core.jobs import steps
from homeport.core.jobs.job import Job, JobOutcome, JobOutput, JobSpec, JobType
from homeport.core.model.instance import Failure
from homeport.vocabulary import Actor, Code, Generation, JobId, JobState, NodeId
from tests.support.builders import HOME, NOW

EXITED = Failure(Code.EXITED, "The job ended with exit code 3.")
NODE = NodeId("n1")


def a_job(**changes: object) -> Job:
    spec = JobSpec(JobType.CONTAINER, ("true",), "app:1", retries=int(str(changes.pop("retries", 0))))
    job = Job(JobId("j"), HOME, spec, JobState.PENDING, 1, NOW, "ann", NOW)
    return replace(job, **changes)  # type: ignore[arg-type]


def running(**changes: object) -> Job:
    given = steps.give(a_job(**changes), NODE, "it is free", NOW).job
    started = steps.start(given, NOW, NOW)
    assert started is not None
    return started.job


def test_each_attempt_has_a_higher_number_than_any_order_before() -> None:
    job = replace(running(retries=3), cancel_generation=Generation(7))
    failed = steps.finish(job, JobOutcome(), EXITED, Actor.NODE, NOW).job
    assert steps.give(failed, NODE, "", NOW).job.generation == 8


def test_a_job_completes_with_its_exit_code_output_and_timing() -> None:
    end = NOW + timedelta(seconds=5)
    outcome = JobOutcome(0, JobOutput("hi\n", 3), started_at=NOW, finished_at=end)
    done = steps.finish(running(), outcome, None, Actor.NODE, end)
    assert (done.job.state, done.job.exit_code, done.job.output_bytes) == (JobState.COMPLETED, 0, 3)
    assert (done.job.started_at, done.job.finished_at) == (NOW, end)


def test_attempts_are_bounded_and_wait_longer_each_time() -> None:
    job, waits = running(retries=2), []
    for _ in range(2):
        job = steps.finish(job, JobOutcome(3), EXITED, Actor.NODE, NOW).job
        assert job.state is JobState.PENDING
        assert job.not_before is not None
        waits.append(job.not_before - NOW)
        job = steps.give(job, NODE, "", NOW).job
    assert waits[0] < waits[1]
    job = steps.finish(job, JobOutcome(3), EXITED, Actor.NODE, NOW).job
    assert (job.state, job.attempt, job.exit_code) == (JobState.FAILED, 3, 3)
    assert job.reason == "failed after 3 attempts: The job ended with exit code 3 (EXITED)"


def test_what_would_only_fail_again_is_not_retried() -> None:
    refused = Failure(Code.NOT_ALLOWED, "This node does not allow native commands.")
    assert steps.finish(running(retries=5), JobOutcome(), refused, Actor.NODE, NOW).job.state is JobState.FAILED


def test_a_lost_node_leads_to_a_retry_or_to_a_failure_with_the_reason() -> None:
    lost = Failure(Code.NODE_OFFLINE, "Node n1 was lost while it had the job.")
    assert steps.give_up(running(retries=1), lost, NOW).job.state is JobState.PENDING
    failed = steps.give_up(running(), lost, NOW).job
    assert (failed.state, failed.reason) == (JobState.FAILED, f"failed: {lost}")


def test_a_running_job_is_cancelled_by_its_nodes_answer_and_may_still_complete() -> None:
    asked = steps.ask_to_cancel(running(), "ben", NOW)
    assert asked is not None
    assert asked.state is JobState.RUNNING
    assert steps.ask_to_cancel(asked, "eve", NOW) is None
    assert steps.cancel(asked, Actor.NODE, NOW).job.state is JobState.CANCELLED
    assert steps.finish(asked, JobOutcome(0), None, Actor.NODE, NOW).job.state is JobState.COMPLETED
    # Killed by the cancellation: not a failure to retry.
    assert steps.finish(asked, JobOutcome(137), EXITED, Actor.NODE, NOW).job.state is JobState.CANCELLED


def test_an_attempt_without_a_result_is_overdue_after_its_time_and_some_grace() -> None:
    job = running()
    late = NOW + timedelta(seconds=job.spec.timeout_seconds + steps.OVERDUE_SECONDS)
    assert steps.overdue(job, late - timedelta(seconds=1)) is None
    failure = steps.overdue(job, late)
    assert failure is not None
    assert failure.code == Code.TIMEOUT
    assert steps.overdue(a_job(), late) is None


def test_a_repeated_start_is_recognised() -> None:
    assert steps.start(running(), NOW, NOW) is None


def test_only_a_number_above_all_that_were_given_is_of_a_lost_order() -> None:
    job = replace(running(), generation=Generation(3), cancel_generation=Generation(5))
    assert [steps.is_lost(job, Generation(number)) for number in (3, 5, 6)] == [False, False, True]
    assert not steps.is_lost(job, Generation(2**63 - 1)), "a node cannot use all numbers up"


def test_a_newer_attempt_that_its_node_remembers_is_the_newest_one() -> None:
    for job in (a_job(), running()):
        found = steps.recognise(job, NODE, Generation(4), NOW)
        known = found.job if isinstance(found, steps.JobStep) else found
        assert (known.generation, known.node_id, known.version) == (4, NODE, job.version + 1)
        assert known.state is not JobState.PENDING


def test_a_job_that_a_lost_order_has_stopped_is_begun_again_only_where_its_author_allows_that() -> None:
    for retries, state in ((0, JobState.FAILED), (1, JobState.PENDING)):
        after = steps.stopped_by_lost_order(running(retries=retries), NODE, Generation(4), NOW)
        assert isinstance(after, steps.JobStep)
        assert (after.job.state, steps.next_generation(after.job)) == (state, 5)
    pending = steps.stopped_by_lost_order(a_job(), NODE, Generation(4), NOW)
    assert isinstance(pending, Job)
    assert (pending.state, steps.next_generation(pending)) == (JobState.PENDING, 5)
