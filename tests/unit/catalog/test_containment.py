"""Whatever goes wrong while a document is read becomes a problem of that document."""

import logging

import pytest

from homeport.catalog.containment import PROBLEMS_MAX, TEXT_MAX, contained
from homeport.errors import InvalidInput, InvariantViolated, Problem, TooLarge


@contained
def read(content: bytes, path: str, error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "fault", [OverflowError("too large"), RecursionError(), KeyError("x"), InvariantViolated("?")]
)
def test_a_fault_of_ours_is_a_problem_of_the_document_and_is_logged(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(InvalidInput) as caught:
        read(b"abc", "a.yaml", fault)
    (problem,) = caught.value.problems
    assert problem.path == "a.yaml"
    assert type(fault).__name__ in problem.message
    assert [record.getMessage() for record in caplog.records] == ["document could not be read"]


def test_a_refusal_passes() -> None:
    with pytest.raises(TooLarge):
        read(b"", "a.yaml", TooLarge("a.yaml is too large"))


def test_problems_are_bounded_in_number_and_length() -> None:
    with pytest.raises(InvalidInput) as caught:
        read(b"", "a.yaml", InvalidInput(problems=[Problem("f" * 9999, "m" * 9999)] * 1000))
    problems = caught.value.problems
    assert len(problems) == PROBLEMS_MAX + 1
    assert "980 more" in problems[-1].message
    assert max(len(problem.field) + len(problem.message) for problem in problems) <= 2 * TEXT_MAX
