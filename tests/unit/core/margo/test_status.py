"""States in Margo's words, the overall state, and problem documents."""

from typing import Any

import pytest

from homeport.core.margo.problems import STATUS_OF, problem
from homeport.core.margo.status import MARGO_OF, OURS_OF, SEVERITY, MargoState, overall
from homeport.vocabulary import State
from tests.support.vectors import load_json

OVERALL = load_json("overall-state")


@pytest.mark.parametrize("case", OVERALL["cases"], ids=lambda case: "-".join(case["components"]))
def test_the_overall_state_is_the_most_severe_one(case: dict[str, Any]) -> None:
    assert overall([MargoState(each) for each in case["components"]]) == case["expect"]


def test_the_order_of_severity_is_that_of_the_specification() -> None:
    assert list(SEVERITY) == OVERALL["precedence"]


def test_each_state_of_ours_has_one_of_margo_and_back() -> None:
    assert set(MARGO_OF) == set(State)
    assert set(OURS_OF) == set(MargoState)
    assert all(MARGO_OF[ours] is theirs for theirs, ours in OURS_OF.items())


@pytest.mark.parametrize("case", load_json("problem-types"), ids=lambda case: case["type"].rpartition("#")[2])
def test_registered_problem_types_have_their_status(case: dict[str, Any]) -> None:
    name = case["type"].rpartition("#")[2]
    made = problem(name, "because")
    assert (made["type"], made["status"]) == (case["type"], case["status"])
    assert (made["retryable"], made["backoffStrategy"]) == (False, "none")
    assert name in STATUS_OF


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_work_later_says_when(status: int) -> None:
    made = problem(status, "busy", retry_after_seconds=9)
    assert (made["retryable"], made["backoffStrategy"], made["retryAfterSeconds"]) == (True, "exponential", 9)
    assert made["type"] == "about:blank"
