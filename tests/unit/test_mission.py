"""Every promise of the inference plane names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/reference/mission-inference.md"
ROWS = dict(re.findall(r"^\| (M\d+) \|[^|]*\| (.*) \|$", PAGE.read_text(), re.MULTILINE))


@cache
def functions_in(path: str) -> frozenset[str]:
    found = ast.walk(ast.parse((TESTS / path).read_text()))
    return frozenset(each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_list_has_no_hole() -> None:
    assert [*ROWS] == [f"M{number}" for number in (116, *range(141, 202), 206)]


def test_a_promise_is_shown_by_tests_that_are_there() -> None:
    for row, shown_by in ROWS.items():
        named = re.findall(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", shown_by)
        assert named and len(named) == shown_by.count("`") // 2, row
        for path, name in named:
            assert name in functions_in(path), f"{row}: {path}::{name}"
