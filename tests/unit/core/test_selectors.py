"""Label selectors are read, judged and written back."""

import pytest

from homeport.core.values.selectors import label_problem, parse_selector
from homeport.errors import InvalidInput

LABELS = {"region": "eu", "tier": "prod", "gpu": ""}


@pytest.mark.parametrize(
    ("text", "unmet"),
    [
        ("", None),
        ("region=eu", None),
        ("region==eu", None),
        ("region = eu , tier != test", None),
        ("gpu", None),
        ("gpu=", None),
        ("!old", None),
        ("region in (eu, us),tier notin (test)", None),
        ("zone!=a", None),
        ("zone notin (a,b)", None),
        ("region=us", "region=us"),
        ("region!=eu", "region!=eu"),
        ("zone", "zone"),
        ("zone=a", "zone=a"),
        ("!gpu", "!gpu"),
        ("tier in (test,dev)", "tier in (test,dev)"),
        ("region=eu,tier=test,zone", "tier=test"),
    ],
)
def test_every_requirement_must_hold_and_the_first_that_does_not_is_named(text: str, unmet: str | None) -> None:
    found = parse_selector(text).unmet(LABELS)
    assert (None if found is None else str(found)) == unmet


@pytest.mark.parametrize(
    "text", ["=eu", "a=b=c", "!a=b", "a in b", "a in ()", "a in (b,)", "a,,b", "-a", "a=b,", "a b"]
)
def test_what_cannot_be_read_is_refused_with_the_forms_that_can(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_selector(text)
    assert refused.value.problems[0].field == "selector"


@pytest.mark.parametrize("text", ["region=eu,tier!=test", "a in (b,c),!d,e"])
def test_a_selector_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_selector(text)) == text
    assert parse_selector(str(parse_selector(text))) == parse_selector(text)


def test_labels_are_judged_before_they_are_kept() -> None:
    assert label_problem("example.com/region", "eu-1") is None
    assert label_problem("gpu", "") is None
    assert "not a valid label name" in (label_problem("-x", "a") or "")
    assert "not a valid value for the label x" in (label_problem("x", "a b") or "")


def test_a_selector_has_a_length_that_is_bounded() -> None:
    with pytest.raises(InvalidInput, match="at most 1000"):
        parse_selector("a=b," * 50_000 + "c")
