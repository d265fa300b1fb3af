"""Margo's device constraints, with the sentences that a refusal gives."""

from typing import Any

import pytest

from homeport.core.placement.eligibility import Device, bytes_of, refusal, resolve
from tests.support.vectors import load_json

VECTORS = load_json("eligibility")
DEVICE = Device(VECTORS["device"]["properties"], VECTORS["device"]["labels"])


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
    assert refusal(None, Device({})) is None


def test_a_device_that_does_not_say_its_memory_has_none() -> None:
    assert refusal({"capacityRequirements": {"memory": "1Ki"}}, Device({})) == "needs 1Ki of memory, has none"


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
