"""Parameter values against an app's own rules."""

from typing import Any

import pytest

from homeport.catalog.description import parse_description
from homeport.core.model.app import Parameter, Profile, Rule, Value
from homeport.core.parameters import (
    as_value,
    check_immutable,
    check_values,
    coerce,
    coerce_value,
    data_type_of,
    judge,
    judge_type,
)
from homeport.core.values.patterns import matches
from homeport.errors import InvalidInput
from tests.support.vectors import MARGO, load_json

APP = parse_description((MARGO / "description.yaml").read_bytes(), "margo.yaml").app
HELM, COMPOSE = APP.profiles
SNAKE = {
    "dataType": "data_type",
    "allowEmpty": "allow_empty",
    "minLength": "min_length",
    "maxLength": "max_length",
    "regexMatch": "regex_match",
    "minValue": "min_value",
    "maxValue": "max_value",
    "minPrecision": "min_precision",
    "maxPrecision": "max_precision",
}


def rule(**schema: Any) -> Rule:
    fields: dict[str, Any] = {SNAKE.get(key, key): as_value(value) for key, value in schema.items()}
    return Rule("rule", **fields)


def messages(given: dict[str, Value], profile: Profile = COMPOSE) -> dict[str, str]:
    _, problems = check_values(APP, profile, given)
    return {problem.field: problem.message for problem in problems}


@pytest.mark.parametrize("case", load_json("parameter-values")["cases"], ids=lambda case: str(case["id"]))
def test_values_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    message = judge(rule(**case["schema"]), as_value(case["value"]))
    assert (message is None) is case["valid"], message


def test_given_values_go_over_defaults_and_only_what_reaches_the_profile_is_kept() -> None:
    values, problems = check_values(APP, COMPOSE, {"operator": "Ada", "interval": 60})
    assert not problems
    assert values == {"interval": 60, "operator": "Ada", "zones": ("upper", "lower"), "mode": "plain"}


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"intervall": 60}, "intervall", 'Kiln monitor 1.2.1 has no such parameter. Did you mean "interval"?'),
        ({"interval": "60"}, "interval", 'must be a whole number, not "60".'),
        ({"interval": True}, "interval", "must be a whole number, not true."),
        ({"interval": 29}, "interval", "must be at least 30, not 29."),
        ({"interval": 361}, "interval", "must be at most 360, not 361."),
        ({"operator": "x" * 46}, "operator", f'must have at most 45 characters; "{"x" * 46}" has 46.'),
        ({"operator": ""}, "operator", "must not be empty."),
        ({"operator": "a\0b"}, "operator", "has a character that cannot be passed on."),
        ({"operator": "\ud800"}, "operator", "has a character that cannot be passed on."),
        ({"zones": "upper"}, "zones", 'must be a list, not "upper".'),
        ({"zones": ()}, "zones", "must not be an empty list."),
        (
            {"zones": ("upper", "side")},
            "zones",
            'entry 2 must be one of "upper", "middle", "lower", not "side".',
        ),
        ({"limit": 1.0}, "limit", 'has no effect in profile "kiln-compose": it goes to "monitor" only.'),
        ({"mode": "loud"}, "mode", "is fixed by Kiln monitor: its description offers no setting for it."),
        ({}, "operator", "needs a value (text); the app gives no default."),
    ],
)
def test_a_wrong_value_is_met_with_a_sentence(given: dict[str, Value], field: str, message: str) -> None:
    assert messages(given)[f"parameters.{field}"] == message


def test_an_optional_text_may_be_left_out_or_empty_but_not_too_short() -> None:
    assert "parameters.note" not in messages({"operator": "Ada"})
    assert "parameters.note" not in messages({"operator": "Ada", "note": ""})
    assert "parameters.note" in messages({"operator": "Ada", "note": "abc"})


@pytest.mark.parametrize(
    ("value", "right"), [(0.5, True), (2, True), (0.25, False), (0.4, False), (float("inf"), False)]
)
def test_doubles_have_bounds_and_decimals(value: float, right: bool) -> None:
    assert ("parameters.limit" not in messages({"operator": "Ada", "limit": value}, HELM)) is right


def test_an_app_without_settings_takes_any_value_of_the_default_type() -> None:
    parameter = Parameter("port", 8080, ())
    assert judge_type(parameter, 9090) is None
    assert judge_type(parameter, "9090") == 'must be a whole number, not "9090".'
    assert judge_type(Parameter("free", None, ()), "x") is None


def test_an_immutable_setting_stays_as_installed() -> None:
    before: dict[str, Value] = {"operator": "Ada", "interval": 30}
    assert check_immutable(APP, before, {"operator": "Ada", "interval": 60}) == ()
    (problem,) = check_immutable(APP, before, {"operator": "Bob", "interval": 30})
    assert problem.field == "parameters.operator"
    assert 'it is "Ada"' in problem.message
    assert check_immutable(APP, before, {"interval": 30})
    assert check_immutable(APP, {}, {"operator": "Ada"}) == ()


@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        ("5", "integer", 5),
        ("-5", "integer", -5),
        ("5", "string", "5"),
        ("0.5", "double", 0.5),
        ("2", "double", 2),
        ("1e3", "double", 1000.0),
        ("True", "boolean", True),
        ("false", "boolean", False),
        ("a, b", "array[string]", ("a", "b")),
        ("1,2", "array[integer]", (1, 2)),
        ("", "array[integer]", ()),
    ],
)
def test_text_from_the_command_line_gets_the_type_of_its_rule(text: str, data_type: str, value: Value) -> None:
    typed = coerce(text, Rule("r", data_type))
    assert typed == value
    assert type(typed) is type(value)


@pytest.mark.parametrize(
    ("text", "data_type"), [("5.5", "integer"), ("x", "double"), ("yes", "boolean"), ("1,x", "array[integer]")]
)
def test_text_that_does_not_fit_its_type_is_refused(text: str, data_type: str) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        coerce(text, Rule("r", data_type), field="parameters.r")


def test_a_parameter_is_typed_by_its_rule_or_else_by_its_default() -> None:
    assert coerce_value(APP, "interval", "60") == 60
    assert coerce_value(APP, "zones", "upper,lower") == ("upper", "lower")
    assert coerce_value(APP, "mode", "5") == "5"
    assert coerce_value(APP, "nowhere", "5") == "5"


def test_types_have_margos_names() -> None:
    names = [data_type_of(value) for value in ("a", 1, 1.5, True, (1,), (), None)]
    assert names == ["string", "integer", "double", "boolean", "array[integer]", "array[string]", None]


def test_the_end_of_a_pattern_is_the_end_of_the_text() -> None:
    assert matches("^[a-z]+$", "abc")
    assert not matches("^[a-z]+$", "abc\n")
    assert matches(r"^a\$", "a$")
    assert not matches(r"^\d+$", "٣")


def test_a_secret_may_stand_for_a_text_whatever_its_rule_says() -> None:
    assert messages({"operator": "secret://" + "x" * 100}) == {}


def test_a_secret_may_not_stand_for_anything_but_one_text() -> None:
    found = messages({"interval": "secret://X", "zones": ("secret://X", "lower"), "operator": "secret://no name"})
    assert "cannot be a secret" in found["parameters.interval"]
    assert "cannot be a secret" in found["parameters.zones"]
    assert "names no secret" in found["parameters.operator"]
