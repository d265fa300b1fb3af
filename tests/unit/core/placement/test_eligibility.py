"""Margo's device constraints, with the sentences that a refusal gives."""

from typing import Any

import pytest

from homeport.core.placement.eligibility import DeviceProperties, bytes_of, refusal, resolve
from tests.support.vectors import load_json

VECTORS = load_json("eligibility")
DEVICE = DeviceProperties(VECTORS["device"]["properties"], VECTORS["device"]["labels"])


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: str(case["id"]))
def test_constraints_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    assert (refusal(case["deviceConstraints"], DEVICE) is None) is case["expect"], case["why"]


@pytest.mark.parametrize(
    ("constraints", "sentence"),
    [
        (
            {"capacityRequirements": {"cpu": {"cores": 4, "architectures": ["amd64", "arm64"]}}},
            "needs one CPU with 4 cores of amd64 or arm64, has 2 arm64, 2 arm64",
        ),
        ({"capacityRequirements": {"memory": "8Gi"}}, "needs 8Gi of memory, has 4Gi"),
        ({"capacityRequirements": {"storage": "2Ti"}}, "needs 2Ti of storage, has 1Ti"),
        (
            {"eligibilityRules": [{"labelSelector": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}]},
            "does not meet the rule label gpu Exists",
        ),
        ({"eligibilityRules": []}, "cannot meet an empty list of rules"),
    ],
)
def test_a_refusal_says_what_is_lacking(constraints: dict[str, Any], sentence: str) -> None:
    assert refusal(constraints, DEVICE) == sentence


def test_nothing_asked_for_is_nothing_refused() -> None:
    assert refusal(None, DeviceProperties({})) is None


def test_a_device_that_does_not_say_its_memory_has_none() -> None:
    assert (
        refusal({"capacityRequirements": {"memory": "1Ki"}}, DeviceProperties({})) == "needs 1Ki of memory, has none"
    )


def test_pointers_follow_the_standard() -> None:
    value = {"a/b": {"~": [10, 20]}, "": 1}
    assert resolve(value, "/a~1b/~0/1") == 20
    assert resolve(value, "/") == 1
    assert resolve(value, "") is value
    for absent in ("/a~1b/~0/2", "/a~1b/~0/01", "/a~1b/~0/-", "/x", "a~1b"):
        assert resolve(value, absent) not in (value, 10, 20, 1)


def test_amounts_are_read_with_and_without_a_space() -> None:
    assert bytes_of("4 Gi") == bytes_of("4096Mi") == 2**32
    assert bytes_of("1.5Ki") == 1536
    assert bytes_of("many") == 0


MIXED = DeviceProperties(
    {
        "cpus": [{"cores": 2, "architecture": "arm64"}, {"cores": 8, "architecture": "amd64"}],
        "memory": "4Gi",
        "rank": 5,
        "nothing": None,
        "object": {"a": 1},
        "none": [],
        "slots": [{"a": 1}, "x"],
    },
    {"line": 7, "text": "7", "word": "x", "safe": True, "ones": [1]},
)


@pytest.mark.parametrize(
    ("required", "fits"),
    [
        ({"cpu": {"cores": 8, "architectures": ["amd64"]}}, True),
        ({"cpu": {"cores": 2, "architectures": ["arm64", "riscv64"]}}, True),
        ({"cpu": {"cores": 3, "architectures": ["arm64"]}}, False),  # which only the other one has
        ({"cpu": {"cores": 1, "architectures": ["riscv64"]}}, False),
        ({"cpu": {"cores": 8}}, True),
        ({"cpu": {"cores": 9}}, False),  # not ten of both
        ({"memory": "4096Mi"}, True),
        ({"memory": "4097Mi"}, False),
        ({"cpu": {"cores": 1}, "memory": "5Gi"}, False),
        ({"cpu": {"cores": 9}, "memory": "1Gi"}, False),
    ],
)
def test_one_cpu_has_all_of_it_and_what_is_just_enough_is_enough(required: dict[str, Any], fits: bool) -> None:
    assert (refusal({"capacityRequirements": required}, MIXED) is None) is fits


# fmt: off
EXPRESSIONS: list[tuple[str, str, list[Any] | None, bool]] = [
    ("/rank",         "Gt",           [4],        True),
    ("/rank",         "Gt",           [5],        False),   # strictly
    ("/rank",         "Lt",           [6],        True),
    ("/rank",         "Lt",           [5],        False),
    ("/rank",         "Gt",           ["4.5"],    True),    # a text that is a number
    ("text",          "Gt",           [6],        True),
    ("word",          "Gt",           [0],        False),   # and one that is none
    ("/rank",         "Gt",           ["high"],   False),
    ("safe",          "Gt",           [0],        False),
    ("/none",         "Gt",           [0],        False),
    ("/rank",         "Gt",           [1, 2],     False),
    ("line",          "In",           [7.0],      True),
    ("line",          "In",           ["7"],      False),   # nothing is converted
    ("text",          "In",           [7],        False),
    ("safe",          "In",           [1],        False),
    ("safe",          "In",           [True],     True),
    ("ones",          "In",           [True],     False),
    ("ones",          "In",           [1],        True),
    ("line",          "NotIn",        ["7"],      True),
    ("other",         "NotIn",        [7],        False),   # the key has to be there
    ("/nothing",      "NotIn",        [7],        False),
    ("/nothing",      "Exists",       None,       False),
    ("/nothing",      "DoesNotExist", None,       False),
    ("/nothing",      "In",           [None],     False),
    ("/object",       "Exists",       None,       False),
    ("/object",       "NotIn",        [7],        False),
    ("/cpus",         "Exists",       None,       False),   # objects are for ContainsAll and ContainsAny
    ("/none",         "Exists",       None,       True),
    ("/none",         "In",           ["x"],      False),
    ("/slots",        "ContainsAny",  None,       False),   # not all of them are objects
    ("/cpus/1/cores", "In",           [8],        True),
    ("/cpus/2/cores", "Exists",       None,       False),
    ("/cpus/01/cores", "Exists",      None,       False),
    ("/cpus/x/cores", "Exists",       None,       False),
    ("/memory/0",     "Exists",       None,       False),
]
# fmt: on


@pytest.mark.parametrize(("key", "operator", "values", "expected"), EXPRESSIONS)
def test_values_are_compared_exactly(key: str, operator: str, values: list[Any] | None, expected: bool) -> None:
    expression: dict[str, Any] = {"key": key, "operator": operator}
    if values is not None:
        expression["values"] = values
    if operator == "ContainsAny":
        expression["itemSelector"] = {"matchExpressions": [{"key": "/a", "operator": "In", "values": [1]}]}
    which = "propertySelector" if key.startswith("/") else "labelSelector"
    rules = [{which: {"matchExpressions": [expression]}}]
    assert (refusal({"eligibilityRules": rules}, MIXED) is None) is expected
