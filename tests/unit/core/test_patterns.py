"""An app's expressions run in linear time, or are refused."""

import time

import pytest

from homeport.core.model.app import Rule
from homeport.core.parameters import judge
from homeport.core.values.patterns import PATTERN_LENGTH_MAX, matches, pattern_problem


def test_a_pattern_that_backtracks_for_ever_elsewhere_is_judged_at_once() -> None:
    began = time.process_time()
    assert not matches("^(a+)+$", "a" * 900 + "!")
    assert judge(Rule("word", "string", regex_match="^(([a-z])+.)+[A-Z]([a-z])+$"), "a" * 1000) is not None
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "[", "(.{1,1000}){1,1000}", "a" * (PATTERN_LENGTH_MAX + 1)])
def test_what_re2_does_not_read_is_refused_with_a_sentence(pattern: str) -> None:
    assert pattern_problem(pattern)


@pytest.mark.parametrize("pattern", ["^.{1,1000}$", r"^\d+$", "^[a-z0-9]([a-z0-9-]{0,251}[a-z0-9])?$", "é|ß"])
def test_ordinary_patterns_are_read(pattern: str) -> None:
    assert pattern_problem(pattern) is None


def test_values_are_bounded_before_they_are_matched() -> None:
    rule = Rule("word", "string", regex_match=".")
    assert "at most 1000 are tried" in (judge(rule, "a" * 1001) or "")
    many = Rule("words", "array[string]", regex_match=".")
    assert "in all" in (judge(many, ("a" * 1000,) * 21) or "")


@pytest.mark.parametrize("value", [2**63, -(2**64), float("inf"), "a\0b", "\ud800", (1, 2**70)])
def test_what_cannot_be_passed_on_is_refused_before_any_rule(value: object) -> None:
    for data_type in ("string", "integer", "double", "array[integer]"):
        assert judge(Rule("any", data_type, min_value=0, regex_match="."), value)  # type: ignore[arg-type]
