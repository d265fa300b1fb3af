"""Every promise names tests that exist, or says what is missing."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/reference/mission.md"
ROWS = dict(re.findall(r"^\| (M\d+) \|[^|]*\| (.*) \|$", PAGE.read_text(), re.MULTILINE))
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
MISSING = re.compile(r"(Not yet|Half): \w.{10,}")


@cache
def functions_in(path: str) -> frozenset[str]:
    found = ast.walk(ast.parse((TESTS / path).read_text()))
    return frozenset(each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_list_has_no_hole() -> None:
    assert [*ROWS] == [f"M{number}" for number in range(1, 207)]


def test_a_promise_is_shown_by_tests_that_are_there_or_what_is_missing_is_said() -> None:
    for row, shown_by in ROWS.items():
        named = NAMED.findall(shown_by)
        missing = MISSING.search(shown_by)
        assert shown_by.count("::") == len(named), row
        assert bool(named) != (missing is not None and missing[1] == "Not yet"), row
        for path, name in named:
            assert name in functions_in(path), f"{row}: {path}::{name}"
