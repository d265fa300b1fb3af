"""Values that come from outside: what could not be written or shown later is refused where it comes in."""

import math
from typing import Any

import pytest

from homeport.core.pipelines.model import Input, InputType, Pipeline
from homeport.core.pipelines.values import check_inputs, from_json
from homeport.errors import InvalidInput


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (nested(60), "nested too deeply"),
        (nested(5_000), "nested too deeply"),
        ([math.nan], "not finite"),
        ([-math.inf], "not finite"),
        (["a\ud800b"], "half a character"),
        ([{"\udfff": 1}], "half a character"),
        ([0] * 200_000, "too large"),
    ],
)
def test_an_input_that_could_not_be_written_is_refused_by_its_name(value: Any, why: str) -> None:
    pipeline = Pipeline("p", (), inputs={"items": Input(InputType.LIST)})
    with pytest.raises(InvalidInput) as caught:
        check_inputs(pipeline, {"items": value})
    (problem,) = caught.value.problems
    assert (problem.field, why in problem.message) == ("inputs.items", True), problem


@pytest.mark.parametrize(
    "text", ["[" * 60 + "]" * 60, "[" * 90_000, "[1e999]", '["\\ud800"]', "{", f"[{'9' * 5_000}]"]
)
def test_what_a_program_writes_that_no_value_may_hold_is_text(text: str) -> None:
    assert from_json(text) is None


def test_what_a_program_writes_as_json_is_a_value() -> None:
    assert from_json('{"a": [1, NaN, "\\ud83d\\ude00"]}') == {"a": [1, None, "😀"]}
