"""YAML as it comes from strangers: every refusal names file, line and field."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.catalog.documents import SIZE_MAX, Quoted, dump, field_path, load
from homeport.errors import InvalidInput, TooLarge


def problems(content: bytes) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        load(content, "margo.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_values_are_plain_data_and_know_their_lines() -> None:
    document = load(b"a: 1\nb:\n  - x: [yes, 1.50, ~]\n    y: 2024-01-31\n", "margo.yaml")
    assert document.data == {"a": 1, "b": [{"x": [True, 1.5, None], "y": "2024-01-31"}]}
    assert document.line(("b", 0, "y")) == 4
    assert document.line(("b", 0, "x", 2)) == 3
    assert document.line(("b", 0, "nowhere", 7)) == 3
    assert document.texts["b", 0, "x", 1] == "1.50"


def test_aliases_are_expanded() -> None:
    assert load(b"a: &x {n: 1}\nb: [*x, *x]\n", "f").data == {"a": {"n": 1}, "b": [{"n": 1}, {"n": 1}]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\nb: 2\na: 3\n", "margo.yaml:3  a: is written twice; the first is on line 1."),
        (b"", "margo.yaml:1  is empty."),
        (b"# nothing\n", "margo.yaml:1  is empty."),
        (b"a: 1\n---\nb: 2\n", "margo.yaml:2  has a second YAML document; one file holds one."),
        (b"a: 1\nb: \xff\n", "margo.yaml:2  is not UTF-8 text."),
        (b"a:\n  b: *gone\n", "margo.yaml:2  a.b: refers to *gone, which is not defined above it."),
        (b"a: !!python/name:os.system x\n", "only plain YAML is read."),
        (b"a: !custom {b: 1}\n", "a: has the tag !custom; only plain YAML is read."),
        (b"a: &a [*a]\n", "is nested more than 64 levels deep."),
        (b"a: .inf\n", "a: .inf is not a number that can be passed on."),
        (b"a: " + b"9" * 5000, "has too many digits for a number."),
        (b"a: 9223372036854775808\n", "margo.yaml:1  a: 9223372036854775808 is too large"),
        (b"a: -9223372036854775809\n", "is too large: a whole number has at most 64 bits."),
        (b"a: 1" + b":59" * 100, "has too many digits for a number."),
        (b'a: "b\\0c"\n', "a: has a character that cannot be passed on."),
        (b'"b\\0c": 1\n', "has a character that cannot be passed on."),
        (b"? " + b"k" * 1025 + b"\n: 1\n", "has a key of more than 1024 characters."),
        (b"? " + b"[" * 70 + b"]" * 70 + b"\n: 1\n", "is nested more than 64 levels deep."),
        (b"? [1, 2]\n: 3\n", "has a key that is not plain text."),
        (b"a: &x {b: 1}\nc:\n  <<: *x\n", "margo.yaml:3  c: uses a merge key (<<); write the fields out."),
        (b"a: b\x00c\n", "has a character that YAML does not allow (U+0000)."),
        (b"a: [1, 2\nb: 3\n", "is not valid YAML: "),
        (b"a:\n\t- 1\n", "is not valid YAML: "),
    ],
)
def test_what_yaml_would_swallow_is_refused_with_its_line(content: bytes, expected: str) -> None:
    assert any(expected in problem for problem in problems(content)), problems(content)


def test_deep_nesting_is_refused_without_deep_recursion() -> None:
    assert "nested more than 64" in problems(b"[" * 100_000)[0]


def test_an_alias_bomb_is_refused_before_it_fills_the_memory() -> None:
    lines = [b"a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for name in "bcdefgh":
        before = chr(ord(name) - 1)
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]".encode())
    assert "more than 100,000 values" in problems(b"\n".join(lines))[0]


def test_an_alias_means_the_anchor_before_it_however_often_its_name_is_used() -> None:
    data = load(b"o: &o [&x 1, *x]\nn: &x 2\np: [*o, *x]\n", "f").data
    assert data == {"o": [1, 1], "n": 2, "p": [[1, 1], 2]}


def test_anchors_inside_anchors_are_not_read_again_for_each() -> None:
    content = b"".join(b"&a%d [" % number for number in range(60)) + b"0, " * 95_000 + b"0" + b"]" * 60
    began = time.process_time()
    load(content, "f")
    nested = time.process_time() - began
    began = time.process_time()
    load(b"[" + b"0, " * 95_000 + b"0]", "f")
    assert nested < 5 * (time.process_time() - began)


def test_a_file_above_one_mebibyte_is_too_large() -> None:
    with pytest.raises(TooLarge, match="larger than 1 MiB"):
        load(b"a" * (SIZE_MAX + 1), "margo.yaml")


def test_fields_are_written_as_people_write_them() -> None:
    assert (
        field_path(("deploymentProfiles", 0, "components", 1, "name")) == "deploymentProfiles[0].components[1].name"
    )


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_cause_anything_but_a_refusal(content: bytes) -> None:
    try:
        load(content, "f.yaml")
    except InvalidInput as error:
        assert error.problems


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT
DATA = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


@settings(max_examples=50, deadline=None)
@given(DATA)
def test_what_is_dumped_is_loaded_again(data: object) -> None:
    content = dump({"data": data})
    assert load(content, "f.yaml").data == {"data": data}
    assert dump({"data": data}) == content


def test_a_version_stays_text_when_dumped() -> None:
    assert dump({"version": Quoted("1.10")}) == b'version: "1.10"\n'
