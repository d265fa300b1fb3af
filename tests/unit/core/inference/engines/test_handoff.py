"""Handoff records: what is read, what is refused, and which change needs a new adapter."""

from dataclasses import replace
from typing import Any

import pytest

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, parse, to_data
from homeport.errors import InvalidInput

GOOD: dict[str, Any] = {"engine": "llamacpp", "url": "http://127.0.0.1:8090", "model": {"id": "tiny", "path": "/m"}}


def test_what_is_left_out_has_its_default() -> None:
    assert parse(GOOD) == Handoff(
        engine=EngineName.LLAMACPP, url="http://127.0.0.1:8090", model=HandoffModel("tiny", "/m")
    )
    assert parse(GOOD).key == ("default", "r0")


def test_a_record_survives_the_way_to_json_and_back() -> None:
    handoff = replace(parse(GOOD), flags=("-c", "4096"), slots_total=4, ctx_max=4096, node_id="n1", device_mask="0,1")
    assert parse(to_data(handoff)) == handoff


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert parse({**GOOD, "color": "green"}) == parse(GOOD)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"engine": "abacus"}, "engine"),
        ({"url": None}, "url"),
        ({"url": "ftp://host"}, "url"),
        ({"url": "http://user@host:1"}, "url"),
        ({"url": "http://host/a b"}, "url"),
        ({"model": None}, "model"),
        ({"model": {"id": "a\nb"}}, "model.id"),
        ({"pool_id": "../etc"}, "pool_id"),
        ({"replica_id": "x" * 200}, "replica_id"),
        ({"device_mask": "0;1"}, "device_mask"),
        ({"device_mask": "0,,1"}, "device_mask"),
        ({"flags": "all"}, "flags"),
        ({"flags": [1]}, "flags"),
        ({"slots_total": 10**9}, "slots_total"),
        ({"slots_total": True}, "slots_total"),
        ({"slots_free": -1}, "slots_free"),
        ({"ctx_max": "many"}, "ctx_max"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse({**GOOD, **change})
    assert field in [problem.field for problem in caught.value.problems]


def test_a_device_mask_has_one_form_however_it_was_written() -> None:
    assert parse({**GOOD, "device_mask": "0, 1"}).device_mask == parse({**GOOD, "device_mask": "0,1"}).device_mask
    assert parse({**GOOD, "device_mask": "GPU-8f2a,MIG-1.2"}).device_mask == "GPU-8f2a,MIG-1.2"


def test_something_else_than_an_object_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parse(["engine"])


@pytest.mark.parametrize(
    ("changes", "workloads"),
    [
        ({}, {"completion", "embedding", "rerank"}),
        ({"provisioning_mode": "package"}, {"completion"}),
        ({"provisioning_mode": "package", "flags": ["--embeddings"]}, {"completion", "embedding"}),
        ({"provisioning_mode": "container", "flags": ["--reranking"]}, {"completion", "embedding", "rerank"}),
        ({"engine": "triton"}, {"completion"}),
        ({"engine": "vllm", "provisioning_mode": "container"}, {"completion", "embedding", "rerank"}),
    ],
)
def test_what_an_engine_can_be_asked_for_follows_from_how_it_was_started(
    changes: dict[str, Any], workloads: set[str]
) -> None:
    assert parse({**GOOD, **changes}).workloads == workloads


def test_free_slots_alone_do_not_need_a_new_adapter() -> None:
    bound = parse(GOOD)
    assert bound.is_same_engine(replace(bound, slots_free=0))
    assert not bound.is_same_engine(replace(bound, url="http://127.0.0.1:8091"))
