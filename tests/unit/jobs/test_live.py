"""Live output of jobs: whose lines count."""

from datetime import UTC, datetime

import pytest

from homeport.jobs.node.output import FIELD_ATTEMPT, FIELD_OFFSET
from homeport.jobs.site.live import BYTES_MAX, ENDED_BYTES_MAX, LiveOutput
from homeport.ports import LogLine, Logs
from homeport.vocabulary import JobId, NodeId

JOB = JobId("j-1")
HONEST, EVIL = NodeId("honest"), NodeId("evil")


def lines(text: str, *, offset: str = "0", attempt: str = "1") -> Logs:
    fields = {FIELD_OFFSET: offset, FIELD_ATTEMPT: attempt}
    return Logs((LogLine(datetime(2030, 1, 1, tzinfo=UTC), f"job/{JOB}", "info", text, fields, 1),))


def live() -> LiveOutput:
    made = LiveOutput()
    made.owner_of = {JOB: HONEST}.get
    return made


def test_a_node_writes_into_the_output_of_its_own_jobs_alone() -> None:
    output = live()
    output.take(EVIL, lines("forged", attempt="9"))
    assert output.read(JOB, 9, 0) is None
    output.take(HONEST, lines("mine"))
    shown = output.read(JOB, 1, 0)
    assert shown is not None
    assert shown.text == "mine\n"


@pytest.mark.parametrize(
    "number", ["9" * 5_000, "", "-1", "²", "x"], ids=["huge", "none", "negative", "sign", "word"]
)
def test_a_place_that_is_no_number_is_passed_over(number: str) -> None:
    output = live()
    output.take(HONEST, lines("a", offset=number))
    output.take(HONEST, lines("b", attempt=number))
    assert output.read(JOB, 1, 0) is None


def test_a_reader_gets_what_follows_its_place_and_what_is_gone_is_noticed() -> None:
    output = live()
    for number in range(2_000):
        output.put(JOB, 1, number * 500, "x" * 500)
    whole = output.read(JOB, 1, 0)
    assert whole is not None
    assert (whole.start + len(whole.text), len(whole.text) <= BYTES_MAX) == (1_000_000, True)
    last = output.read(JOB, 1, 999_000)
    assert last is not None
    assert (last.start, last.text, last.next) == (999_000, "x" * 1_000, 1_000_000)
    assert output.read(JOB, 1, 1_000_000) is None


def test_what_a_job_printed_outlives_it_for_a_while_with_what_comes_late() -> None:
    owners = {JOB: HONEST}
    output = LiveOutput()
    output.owner_of = owners.get
    output.take(HONEST, lines("early"))
    del owners[JOB]
    output.ended(JOB, HONEST)
    output.take(EVIL, lines("forged", offset="6"))
    output.take(HONEST, lines("late", offset="6"))
    shown = output.read(JOB, 1, 0)
    assert shown is not None
    assert shown.text == "early\nlate\n"


def test_what_ended_jobs_have_printed_is_bounded() -> None:
    output = live()
    for number in range(100):
        job = JobId(f"j-{number}")
        for part in range(10):
            output.put(job, 1, part * 20_000, "x" * 20_000)
        output.ended(job, HONEST)
    kept = [number for number in range(100) if output.read(JobId(f"j-{number}"), 1, 0) is not None]
    assert kept == list(range(100 - ENDED_BYTES_MAX // 200_000, 100))


def test_a_job_that_begins_shows_nothing_of_an_earlier_one_of_its_id() -> None:
    output = live()
    output.put(JOB, 1, 0, "old\n")
    output.ended(JOB, HONEST)
    output.forget(JOB)
    output.put(JOB, 1, 0, "new\n")
    shown = output.read(JOB, 1, 0)
    assert shown is not None
    assert shown.text == "new\n"


def test_a_part_ends_where_something_is_missing_and_the_next_begins_behind_it() -> None:
    output = live()
    output.put(JOB, 1, 0, "a\n")
    output.put(JOB, 1, 100, "b\n")
    first = output.read(JOB, 1, 0)
    assert first is not None
    assert (first.text, first.next) == ("a\n", 2)
    second = output.read(JOB, 1, first.next)
    assert second is not None
    assert (second.start, second.text, second.next) == (100, "b\n", 102)
    end = output.end(JOB, 1)
    assert end is not None
    assert (end.text, end.next) == ("b\n", 102)
