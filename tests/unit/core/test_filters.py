"""The filter language of lists, the map and logs."""

from collections.abc import Mapping

import pytest

from homeport.core.values.filters import (
    DEPLOYMENT_WORDS,
    LENGTH_MAX,
    LOG_WORDS,
    Part,
    has_label,
    matches,
    parse_filter,
)
from homeport.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("line vision", (Part("", ("line",)), Part("", ("vision",)))),
        ("site:gdansk-* -state:INSTALLED", (Part("site", ("gdansk-*",)), Part("state", ("INSTALLED",), True))),
        ("site:a app:x site:b", (Part("site", ("a", "b")), Part("app", ("x",)))),
        ("-site:a -site:b", (Part("site", ("a",), True), Part("site", ("b",), True))),
        (
            '"two words" "-minus" name:"a b"',
            (Part("", ("two words",)), Part("", ("-minus",)), Part("name", ("a b",))),
        ),
        ("LABEL:region=north label:gpu", (Part("label", ("region=north", "gpu")),)),
        ('- "', (Part("", ("-",)), Part("", ('"',)))),
    ],
)
def test_a_filter_is_read(text: str, expected: tuple[Part, ...]) -> None:
    assert parse_filter(text, DEPLOYMENT_WORDS) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sate:FAILED", '"sate:" is not a word of this filter. Use site, node, app, state, label, code, name'),
        ("site:", '"site:" has no value. Write site:VALUE'),
        ("label:=north", '"label:=north" is not a label. Write label:region'),
        ("x " * 21, "has more than 20 parts"),
        ("x" * (LENGTH_MAX + 1), "has 301 characters; at most 300 are read."),
    ],
)
def test_what_cannot_be_read_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_filter(text, DEPLOYMENT_WORDS)
    (problem,) = caught.value.problems
    assert (problem.field, message in problem.message) == ("filter", True), problem.message


def test_in_logs_an_unknown_word_is_text() -> None:
    found = parse_filter("http://x/y error: site:home", LOG_WORDS, is_strict=False)
    assert found == (Part("", ("http://x/y",)), Part("", ("error:",)), Part("site", ("home",)))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("gdansk-1", "GDANSK-1", True),
        ("gdansk", "gdansk-1", False),
        ("gdansk-*", "gdansk-1", True),
        ("*-1", "gdansk-1", True),
        ("g*k-*", "gdansk-1", True),
        ("*", "", True),
        ("a*a", "a", False),
        ("ab*ba", "aba", False),
        ("*a*b*", "xxaxxbxx", True),
        ("*b*a*", "ab", False),
    ],
)
def test_a_star_is_any_characters(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    ("value", "labels", "expected"),
    [
        ("region", {"region": "north"}, True),
        ("region=nor*", {"region": "north"}, True),
        ("region=south", {"region": "north"}, False),
        ("tier", {"region": "north"}, False),
        ("region=", {"region": ""}, True),
    ],
)
def test_a_label_is_there_or_has_a_value(value: str, labels: Mapping[str, str], expected: bool) -> None:
    assert has_label(value, labels) is expected
