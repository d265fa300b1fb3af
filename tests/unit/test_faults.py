"""Every fault of the list is shown by a test that exists."""

import ast
from pathlib import Path

import pytest

from tests.faults import MEASURED, SHOWN_BY

TESTS = Path(__file__).parents[1]


def test_the_list_has_no_hole() -> None:
    assert {*SHOWN_BY, *MEASURED} == {f"F{number}" for number in range(1, 26)}


@pytest.mark.parametrize("fault", SHOWN_BY)
def test_a_fault_is_shown_by_tests_that_are_there(fault: str) -> None:
    assert SHOWN_BY[fault]
    for each in SHOWN_BY[fault]:
        path, _, name = each.partition("::")
        found = ast.walk(ast.parse((TESTS / path).read_text()))
        assert name in {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}, each
