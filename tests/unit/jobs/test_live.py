"""Live output of jobs: whose lines count."""

from datetime import UTC, datetime

import pytest

from homeport.jobs.node.output import FIELD_ATTEMPT, FIELD_OFFSET
from homeport.jobs.site.live import BYTES_MAX, LiveOutput
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
