"""Every rule of the checklist is shown by tests that exist, or has a written reason."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

from tests.conformance.margo.claims import CLAIMS
from tests.conformance.margo.rules import RULES
from tests.support.vectors import load_json

ROOT = Path(__file__).resolve().parents[3]


@cache
def functions_of(file: str) -> frozenset[str]:
    found = ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_rule_is_claimed_exactly_once() -> None:
    claimed = Counter(rule for claim in CLAIMS for rule in claim.ids.split())
    rules = [item["id"] for item in load_json("conformance-checklist")["items"]]
    assert len(rules) == 197
    assert sorted(claimed.elements()) == sorted(rules)


def test_every_test_that_is_named_exists() -> None:
    named = [test for claim in CLAIMS for test in claim.tests] + [test for rule in RULES for test in rule.tests]
    missing = [test for test in named if test.split("::")[1] not in functions_of(test.split("::")[0])]
    assert missing == []


def test_what_has_no_test_has_a_reason() -> None:
    assert [claim.ids for claim in CLAIMS if not claim.tests and not claim.why] == []
