"""The documented schema of handoff files says what is written, and what is read."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, Loading, parse, to_data
from homeport.core.inference.engines.preparing import PreparationStep, PreparingStep, begun, moved, steps_of
from homeport.errors import InvalidInput

STEPS = steps_of(engine="vllm", model="hf:org/repo", pool_id="large", provisions=True, fetches=True)
TEXT = (Path(__file__).parents[5] / "docs/explanation/engine-handoff.md").read_text()


def block(kind: str) -> Any:
    (found,) = re.findall(rf"```json {kind}\n(.*?)```", TEXT, re.DOTALL)
    return json.loads(found)


SCHEMA = block("schema")


def is_documented(record: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(record))


def is_read(record: Any) -> bool:
    try:
        parse(record)
    except InvalidInput:
        return False
    return True


def test_every_field_of_a_record_is_documented_and_no_other() -> None:
    assert set(SCHEMA["properties"]) == {each.name for each in fields(Handoff)}
    assert set(SCHEMA["properties"]["model"]["properties"]) == {each.name for each in fields(HandoffModel)}
    step = SCHEMA["properties"]["preparation"]["items"]
    assert set(step["properties"]) == {each.name for each in fields(PreparationStep)}
    assert SCHEMA["properties"]["engine"]["enum"] == [each.value for each in EngineName]
    assert SCHEMA["properties"]["loading"]["enum"] == [each.value for each in Loading]


def test_what_is_written_is_documented_and_read_again() -> None:
    full = Handoff(
        engine=EngineName.VLLM,
        url="https://gpu.example:8000/v1",
        model=HandoffModel("m", "/models/m", 7),
        pool_id="large",
        replica_id="node-1",
        flags=("--tensor-parallel-size", "2"),
        device_mask="0,1",
        slots_total=8,
        slots_free=3,
        ctx_max=4096,
        node_id="node-1",
        loading=Loading.UNLOADED,
        problem="out of memory",
        problem_at_ms=5,
        loaded_min=1,
        idle_seconds=60,
        preparation=moved(begun(STEPS, PreparingStep.MODEL), 3, 7),
        api_key="sk-1",
    )
    for each in (full, Handoff(engine=EngineName.LLAMACPP, url="http://127.0.0.1:1", model=HandoffModel("m"))):
        assert is_documented(json.loads(json.dumps(to_data(each))))
        assert parse(to_data(each)) == each
    assert is_documented(block("example"))
    assert is_read(block("example"))


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "abacus"},
        {"url": "ftp://x"},
        {"url": "http://user@x"},
        {"model": {"path": "/m"}},
        {"model": {"id": "m", "size_bytes": -1}},
        {"model": {"id": "m", "size_bytes": "large"}},
        {"pool_id": "no spaces"},
        {"slots_total": 5000},
        {"slots_total": "8"},
        {"flags": "--x"},
        {"loading": "maybe"},
        {"api_key": "two words"},
        {"api_key": "x" * 513},
        {"idle_seconds": -1},
        {"preparation": {}},
        {"preparation": [{}] * 9},
        {"preparation": [{"kind": "model_fetch"}]},
        {"preparation": [{"id": "m", "kind": "model_fetch", "bytes_done": -1}]},
        {"preparation": [{"id": 7, "kind": "model_fetch"}]},
    ],
)
def test_what_the_schema_refuses_is_refused_when_it_is_read(changes: dict[str, Any]) -> None:
    record = {**block("example"), **changes}
    assert not is_documented(record)
    assert not is_read(record)
