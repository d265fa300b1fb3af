"""Inputs and outputs that could be kept and never be shown."""

from typing import Any

import pytest

from homeport.catalog.pipeline import parse_pipeline
from homeport.core.pipelines.expressions import evaluate, parse
from homeport.core.pipelines.functions import ExpressionError, json_in
from homeport.core.pipelines.values import check_inputs
from homeport.errors import InvalidInput
from homeport.pipelines.bodies import ItemResultBody

PIPELINE = parse_pipeline(
    b'name: p\ninputs:\n  x: {type: object, default: {}}\nsteps:\n  a: {job: {command: ["true"]}}\n', "pipeline.yaml"
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", ["\ud800", "a\0b", {"\udfff": 1}, float("nan"), float("inf"), 2**63, 10**300, nested(70), nested(900)]
)
def test_an_input_that_could_never_be_shown_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"inputs\.x: (has|is nested)"):
        check_inputs(PIPELINE, {"x": {"key": value}})


def test_other_inputs_are_taken_as_they_are() -> None:
    given = {"x": {"text": "Zoë 🚢\n", "numbers": [0, -(2**63), 1.5], "deep": nested(40), "none": None}}
    assert check_inputs(PIPELINE, given) == given


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\ud800": 1}', "[1e999]", "[" * 300 + "]" * 300, "[" * 9_999, "x"])
def test_json_of_a_program_or_a_server_that_could_never_be_shown_is_text(text: str) -> None:
    assert json_in(text) is None


def test_json_of_a_program_can_be_shown() -> None:
    found = json_in('{"a": ["\\ud83d\\udea2", 1.5, null, NaN]}')
    assert found == {"a": ["🚢", 1.5, None, None]}
    ItemResultBody(number=0, output=found, log="").model_dump_json()


def test_half_of_a_character_is_no_value_of_an_expression() -> None:
    with pytest.raises(ExpressionError, match="surrogate"):
        evaluate(parse("from_json(inputs.x)"), {"inputs": {"x": '"\\ud800"'}})
