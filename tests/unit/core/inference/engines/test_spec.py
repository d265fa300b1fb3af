"""The section `engine` of a component, and the variables over it."""

from typing import Any

import pytest

from homeport.core.custom import OURS, judge_custom
from homeport.core.inference.engines.handoff import EngineName
from homeport.core.inference.engines.spec import ComputeDevice, Mode, judge_engine, own_environment, read_engine
from homeport.errors import InvalidInput


def test_parameters_override_the_section_and_the_rest_stays_the_engines_own() -> None:
    variables = {"MODEL": "hf:org/repo/x.gguf", "DEVICE": "cpu", "SLOTS": "4", "HF_TOKEN": "t", "CONTEXT": ""}
    spec = read_engine({"engine": "llamacpp", "slots": 1, "context": 2048}, variables)
    assert (spec.engine, spec.mode, spec.device) == (EngineName.LLAMACPP, Mode.PACKAGE, ComputeDevice.CPU)
    assert (spec.slots, spec.context, spec.served_model_id) == (4, 2048, "x")
    assert own_environment(variables) == {"HF_TOKEN": "t"}


def test_a_gpu_is_wanted_unless_somebody_says_otherwise() -> None:
    assert read_engine({"engine": "llamacpp", "model": "/x.gguf"}, {}).device is ComputeDevice.GPU


def test_ollama_takes_the_name_of_its_own_hub() -> None:
    spec = read_engine({"engine": "ollama", "model": "llama3:8b"}, {})
    assert (spec.mode, spec.served_model_id, spec.preferred_port) == (Mode.CONTAINER, "llama3:8b", 11434)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"engine": "llama"}, "engine"),
        ({}, "engine"),
        ({"engine": "vllm", "mode": "source"}, "mode"),
        ({"engine": "llamacpp", "modle": "x"}, "modle"),
        ({"engine": "llamacpp", "model": "ftp://x"}, "model"),
        ({"engine": "llamacpp", "digest": "md5:1"}, "digest"),
        ({"engine": "llamacpp", "slots": 0}, "slots"),
        ({"engine": "llamacpp", "slots": True}, "slots"),
        ({"engine": "llamacpp", "port": 80}, "port"),
        ({"engine": "llamacpp", "flags": "--x"}, "flags"),
        ({"engine": "llamacpp", "device": "tpu"}, "device"),
        ({"engine": "llamacpp", "device_mask": "first"}, "device_mask"),
        ({"engine": "llamacpp", "mode": "binary", "binary": "https://host/llama"}, "checksum"),
        ({"engine": "openai", "url": "not a url"}, "url"),
    ],
)
def test_a_wrong_field_is_named(section: dict[str, Any], field: str) -> None:
    assert [where for where, _ in judge_engine(section)] == [(field,)]
    found = judge_custom({OURS: {"engine": section}}, repository="oci://host/x", revision="1.0.0")
    assert [where for where, _ in found] == [(OURS, "engine", field)]


def test_what_parameters_shall_bring_may_be_missing_in_the_description_but_not_on_the_node() -> None:
    assert judge_engine({"engine": "llamacpp"}) == []
    with pytest.raises(InvalidInput, match="model is not given"):
        read_engine({"engine": "llamacpp"}, {})
    with pytest.raises(InvalidInput, match="url is needed"):
        read_engine({"engine": "openai", "model_id": "gpt"}, {})


def test_a_section_that_is_no_mapping_is_a_problem_and_no_crash() -> None:
    assert judge_engine(["llamacpp"])[0] == ((), "must be a mapping (name: value).")
