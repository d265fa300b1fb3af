"""YAML of strangers: what is within bounds is read, the rest is refused with a sentence and harms nobody."""

import pytest

from homeport.adapters.files.bounded_yaml import load_documents
from homeport.errors import InvalidInput


def doublings(count: int) -> str:
    """Each line is twice the one before, once its aliases are written out."""
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, count))]
    return "\n".join(lines)


def merges(count: int) -> str:
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, count))]
    return "\n".join(lines)


def test_documents_are_read_with_aliases_merges_and_unknown_tags() -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: !reset null\nd: !override [1]\n---\n- *z\n".replace("*z", "z")
    assert load_documents(text, "file") == [{"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": "null", "d": [1]}, ["z"]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 60_000, "nested more than 64 levels"),
        ("{a: " * 60_000, "nested more than 64 levels"),
        ("- " * 60_000, "nested more than 64 levels"),
        (doublings(60), "values once aliases"),
        (merges(60), "values once aliases"),
        ("x" * 1_100_000, "larger than 1024 KiB"),
        ("a: [", "not valid YAML"),
        ("a: 2024-13-45", "cannot be read"),
        (f"a: {'9' * 5000}", "cannot be read"),
        ("? [a]\n: b", "not valid YAML|cannot be read"),
        ("a: *nothing", "not valid YAML"),
        ("a: !!python/object/apply:os.system [x]", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML|cannot be read"),
        (b"\x85PNG\r\n", "^file is not valid YAML: it is not text in UTF-8, or has control characters.$"),
        ("a: \x07", "control characters"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_a_moment(text: str | bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        load_documents(text, "file")


def test_an_alias_to_what_is_around_it_builds_nothing_endless() -> None:
    (found,) = load_documents("a: &a [*a]", "file")
    assert found["a"][0] is found["a"]
