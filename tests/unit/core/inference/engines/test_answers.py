"""What an answer of an engine from 400 on means: its code, and what was said."""

import json

import pytest

from homeport.core.inference.engines.answers import code_of_status, error_of, sentence_of
from homeport.core.inference.task import TaskCode


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, TaskCode.INVALID_PARAMS),
        (422, TaskCode.INVALID_PARAMS),
        (501, TaskCode.INVALID_PARAMS),
        (429, TaskCode.REPLICA_EXHAUSTED),
        (401, TaskCode.WORKER_RESET),
        (500, TaskCode.WORKER_RESET),
        (503, TaskCode.WORKER_RESET),
    ],
)
def test_each_status_has_its_code(status: int, code: TaskCode) -> None:
    assert code_of_status(status) is code


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"error": {"message": "too long", "code": 400}}, "too long"),
        ({"error": "overloaded", "error_type": "overloaded"}, "overloaded"),
        ({"object": "error", "message": "no such model"}, "no such model"),
        ({"detail": "not found"}, "not found"),
        ({"detail": [{"loc": ["body"]}]}, ""),
        ({"error": {"message": 5}}, ""),
        (["error"], ""),
        ("x", ""),
    ],
)
def test_what_engines_say_is_found_in_each_of_their_forms(content: object, message: str) -> None:
    assert error_of(json.dumps(content).encode())["message"] == message


def test_what_cannot_be_read_is_still_a_sentence() -> None:
    assert sentence_of(500, b"\xff<html>") == "The engine answered 500."
    assert sentence_of(500, b"[" * 100_000) == "The engine answered 500."
    assert (
        sentence_of(400, b'{"error": {"message": "It is too long."}}') == "The engine answered 400: It is too long."
    )
