"""Every error has its status, and nothing of ours leaks out of a 500."""

from typing import Any

import pytest

from homeport.errors import (
    Conflict,
    GitUnavailable,
    HomeportError,
    IllegalTransition,
    InvalidInput,
    NotFound,
    Problem,
    Refused,
    TooLarge,
)
from homeport.serving.problems import plain_message, problem_of, problem_response
from homeport.serving.server.sse import cursor_from
from homeport.vocabulary import DEPLOYMENT_NAME_PATTERN, SITE_NAME_PATTERN


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("x"), 422),
        (NotFound("x"), 404),
        (Conflict("x"), 409),
        (TooLarge("x"), 413),
        (Refused("x"), 403),
        (GitUnavailable("x"), 503),
        (IllegalTransition("x"), 500),
    ],
)
def test_each_error_has_its_status(error: HomeportError, status: int) -> None:
    assert problem_of(error).status == status


def test_a_fault_of_ours_says_nothing_about_its_inside() -> None:
    assert "secret" not in problem_of(IllegalTransition("secret inside")).model_dump_json()


def test_fields_files_and_lines_reach_the_reader() -> None:
    problem = problem_of(InvalidInput(problems=[Problem("a.b", "is wrong", "margo.yaml", 7)]))
    (error,) = problem.errors
    assert (error.field, error.message, error.path, error.line) == ("a.b", "is wrong", "margo.yaml", 7)


def test_what_may_work_later_says_when() -> None:
    response = problem_response(problem_of(GitUnavailable("gone")))
    assert response.headers["retry-after"] == "5"
    assert response.headers["content-type"] == "application/problem+json"


def test_the_header_wins_over_the_query_when_a_stream_is_resumed() -> None:
    assert cursor_from("7", 3) == 7
    assert cursor_from(None, 3) == 3
    assert cursor_from("", None) is None
    for text in ("x", "-1", "9" * 30):
        with pytest.raises(InvalidInput):
            cursor_from(text, None)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"msg": "Field required"}, "is missing"),
        ({"msg": "Extra inputs are not permitted"}, "is not a known field"),
        ({"msg": "Input should be a valid integer"}, "must be a valid integer"),
        ({"msg": "String should have at most 63 characters"}, "must have at most 63 characters"),
        ({"msg": "Value error, x is wrong"}, "x is wrong"),
        ({"msg": "something else"}, "something else"),
        (
            {"msg": "String should match pattern", "ctx": {"pattern": DEPLOYMENT_NAME_PATTERN}},
            "must have small letters, digits and hyphens only, at most 63, and begin and end with a letter or a "
            "digit",
        ),
        (
            {"msg": "String should match pattern", "ctx": {"pattern": SITE_NAME_PATTERN}},
            "must have small letters, digits and hyphens only, at most 63, and begin with a letter or a digit",
        ),
    ],
)
def test_what_the_schema_library_says_follows_the_name_of_the_field(item: dict[str, Any], message: str) -> None:
    assert plain_message(item) == message
