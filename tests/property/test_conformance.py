"""Whether a document conforms to its schema is answered as by the library that explains what is wrong."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.catalog.structure import conforms, validator
from tests.property.test_documents import STRUCTURES, a_deployment, a_rollout_file, places
from tests.support.examples import examples
from tests.support.vectors import load_yaml

INNER = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
WANTS = [
    {"key": "gpu", "operator": "In", "values": ["a"]},
    {"key": "gpu", "operator": "Gt", "values": ["1.5"]},
    {"key": "gpu", "operator": "ContainsAny", "itemSelector": INNER},
]
CONSTRAINTS = {
    "capacityRequirements": {"cpu": {"cores": 0.5, "architectures": ["arm64"]}, "memory": "1Gi", "storage": "10Ti"},
    "eligibilityRules": [{"labelSelector": {"matchExpressions": [each]}} for each in WANTS],
}
PIPELINE = {
    "name": "report",
    "inputs": {"cameras": {"type": "list", "default": ["a"]}},
    "triggers": {"schedule": {"cron": "0 3 * * *", "missed": "run"}},
    "steps": {"ask": {"inference": {"model": "tiny", "prompt": "x"}, "retries": 2}, "scan": {"job": {"image": "x"}}},
}


def documents() -> dict[str, dict[str, Any]]:
    deployment, description = a_deployment(), load_yaml("description.yaml")
    deployment["spec"]["deploymentProfile"]["deviceConstraints"] = CONSTRAINTS
    description["deploymentProfiles"][0]["deviceConstraints"] = CONSTRAINTS
    return {
        "application-deployment": deployment,
        "application-description": description,
        "rollout": a_rollout_file(),
        "pipeline": PIPELINE,
    }


DOCUMENTS = documents()
WORDS = [
    word for wanted in ("In", "NotIn", "Exists", "Lt", "helm", "custom", "1m0s", "v1") for word in (wanted, [wanted])
]
OTHERS = st.sampled_from([*WORDS, *WANTS, 0, 1.0, -1, True, None, "", [], {}, [1], [True], ["a", 1], ["a", "b"]])


def at(data: Any, way: tuple[Any, ...]) -> Any:
    for step in way:
        data = data[step]
    return data


def spoil(document: dict[str, Any], data: st.DataObject) -> None:
    """One value is another one, is gone, or has a neighbour."""
    *way, last = data.draw(st.sampled_from([way for way in places(document) if way]))
    inside = at(document, tuple(way))
    match data.draw(st.sampled_from(["other", "gone", "more"])):
        case "other":
            inside[last] = deepcopy(data.draw(OTHERS | STRUCTURES))
        case "gone":
            del inside[last]
        case _ if isinstance(inside, dict):
            inside[data.draw(st.sampled_from(["x-a-extensions", "values", "labels", "a"]))] = deepcopy(
                data.draw(OTHERS)
            )
        case _:
            inside.append(deepcopy(data.draw(OTHERS)))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_document_conforms_before_it_is_spoilt(name: str) -> None:
    assert conforms(name)(DOCUMENTS[name])


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_document_conforms_where_the_library_finds_nothing_wrong(name: str, data: st.DataObject) -> None:
    document = deepcopy(DOCUMENTS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(document, data)
    assert conforms(name)(document) == validator(name).is_valid(document)
