"""Variables in compose files, as compose itself reads them."""

import pytest

from homeport.adapters.runtime.interpolation import escape, interpolate, parse_env_file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$SET/${SET}", "value/value"),
        ("${UNSET}|$UNSET", "|"),
        ("${UNSET:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY-other}", ""),
        ("${UNSET-other}", "other"),
        ("${SET:+yes}${UNSET:+no}", "yes"),
        ("${EMPTY+yes}${EMPTY:+no}", "yes"),
        ("${UNSET:-${SET}}", "value"),
        ("${SET:?must be set}", "value"),
        ("$$SET", "$SET"),
        ("registry:5000/a:${TAG:-1.0}", "registry:5000/a:1.0"),
    ],
)
def test_variables_are_replaced_as_the_compose_specification_says(text: str, expected: str) -> None:
    assert interpolate(text, {"SET": "value", "EMPTY": ""}) == expected


def test_escaped_text_survives_interpolation() -> None:
    text = "a $b ${c} $$ $"
    assert interpolate(escape(text), {"b": "x", "c": "y"}) == text


def test_an_env_file_may_have_comments_quotes_and_export() -> None:
    text = "# note\nA=1\n\nexport B='two words'\nC=\"3\"\nnonsense\n"
    assert parse_env_file(text) == {"A": "1", "B": "two words", "C": "3"}
