"""Expressions: what they are worth, what may be written in one, and that none of them takes long or grows."""

from typing import Any

import pytest

from homeport.core.pipelines.expressions import evaluate, in_template, parse, render
from homeport.core.pipelines.functions import ExpressionError

NAMES: dict[str, Any] = {
    "inputs": {"count": 3, "name": "Ann", "list": ["b", "a"], "items": {"get": 1, "keys": [2]}},
    "steps": {"build": {"state": "SUCCEEDED", "output": {"code": 0, "text": "one\ntwo\n", "json": {"ok": True}}}},
    "run": {"id": "r1"},
    "item": {"x": None},
    "index": 1,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs.count > 2 and steps.build.output.code == 0", True),
        ("${{ inputs.name }}", "Ann"),
        ("inputs['name'] + '!'", "Ann!"),
        ("inputs.items.get", 1),  # a key, never a method
        ("inputs.items.keys[0]", 2),
        ("[each + '.txt' for each in inputs.list if each != 'a']", ["b.txt"]),
        ("lines(steps.build.output.text)", ["one", "two"]),
        ("join(inputs.list, ',')", "b,a"),
        ("length(inputs.list) * 2 - 1", 3),
        ("default(item.x, 'none')", "none"),
        ("get(item, 'y', 5)", 5),
        ("'an' in lower(inputs.name)", True),
        ("{'a': [1, true, null]}", {"a": [1, True, None]}),
        ("from_json('{\"a\": 1}').a", 1),
        ("number('7') / 2", 3.5),
        ("inputs.list[-1:]", ["a"]),
        ("'yes' if steps.build.output.json.ok else 'no'", "yes"),
        ("max([1, 5, 2]) + sum([1, 2])", 8),
    ],
)
def test_an_expression_is_worth(text: str, value: Any) -> None:
    assert evaluate(parse(text), NAMES) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "1 +", "x", "lambda: 1", "2 ** 9", "f'{run}'", "(1, 2)", "{1, 2}", "(a := 1)", "1 is 1", "steps"),
        *("__import__('os')", "run.__class__()", "'a'.upper()", "inputs.list.append(1)", "open('x')", "b'x'", "..."),
        *(
            "steps[inputs.name]",
            "[steps for steps in [1]]",
            "[x for (x, y) in [1]]",
            "length(*inputs.list)",
            "{1: 2}",
        ),
        *(
            "'" + "a" * 1001 + "'",
            "(" * 150 + ")" * 150,
            "-" * 300 + "1",
            "[" * 60 + "]" * 60,
            "yield 1",
            "{**inputs}",
        ),
    ],
)
def test_what_is_no_expression_is_refused_before_it_is_evaluated(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


BIG = {**NAMES, "item": "a" * 200_000, "inputs": {"list": list(range(9_999))}}


@pytest.mark.parametrize(
    "text",
    [
        *("inputs.nothing", "inputs.name.x", "inputs.name + 1", "'a' * 5", "'%099999d' % 1", "1 / 0", "true + 1"),
        *("inputs.name.__class__", "inputs.list.__len__", "inputs['__class__']", "index.real", "run[0]"),
        *("9223372036854775807 * 9223372036854775807", "1e308 * 10", "range(10001)", "from_json('[' + 'x')"),
        *("split('a', '')", "join('a', 'b')", "number('x')", "inputs.list['a']", "min([])", "keys(1)"),
    ],
)
def test_what_has_no_value_says_why(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(parse(text), NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "item + item",
        "inputs.list + inputs.list",
        "[item + '' for x in inputs.list]",
        "[[x for y in inputs.list] for x in inputs.list]",
        "[json(item) for x in inputs.list]",
        "join([item for x in inputs.list], '')",
        # Small to keep and huge to write: a list of lists that are one.
        "[[a, a, a, a] for a in [[b, b, b, b] for b in inputs.list]]",
        "text([item, item])",
    ],
)
def test_what_would_grow_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(parse(text), BIG)


@pytest.mark.parametrize(
    "looked_at",
    ["7 in inputs.many", "inputs.many == inputs.other", "max(inputs.many)", "sum(inputs.many)", "'b' in inputs.long"],
)
def test_looking_at_a_large_value_again_and_again_takes_too_long(looked_at: str) -> None:
    names = {"inputs": {"many": [1] * 60_000, "other": [1] * 60_000, "long": "a" * 250_000}}
    assert evaluate(parse(looked_at), names) in (True, False, 1, 60_000)
    with pytest.raises(ExpressionError, match="takes too long"):
        evaluate(parse(f"[{looked_at} for x in range(9000)]"), names)


def test_a_structure_that_shares_its_parts_is_not_compared_for_ever() -> None:
    one: list[Any] = [1]
    other: list[Any] = [1]
    for _ in range(60):
        one, other = [one, one], [other, other]
    with pytest.raises(ExpressionError, match="takes too long"):
        evaluate(parse("inputs.one == inputs.other"), {"inputs": {"one": one, "other": other}})


def test_a_text_that_is_one_expression_keeps_its_type_and_others_are_filled_in() -> None:
    wanted = {"a": "${{ inputs.count }}", "b": ["n=${{ inputs.count }} ${{ inputs.list }}", 7], "c": "${ no }"}
    assert render(wanted, NAMES) == {"a": 3, "b": ['n=3 ["b", "a"]', 7], "c": "${ no }"}


def test_expressions_in_a_value_are_found_with_their_place_and_steps() -> None:
    found = list(in_template({"command": ["x", "${{ steps.build.output }} ${{ inputs.name }}"]}))
    assert [(place, sorted(each.steps), sorted(each.inputs)) for place, each in found] == [
        (("command", 1), ["build"], []),
        (("command", 1), [], ["name"]),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sum(['a', 1])", r"\+ is not for a number and a text"),
        ("max([1, 'a'])", "> is not for a text and a number"),
        ("min([null, [1]])", "< is not for a list and null"),
    ],
)
def test_a_failure_speaks_of_values_and_not_of_types_of_python(text: str, said: str) -> None:
    with pytest.raises(ExpressionError, match=said):
        evaluate(parse(text), {})
