"""Completions in OpenAI's form, of engines that have no `/v1`."""

import json
from typing import Any

import pytest

from homeport.core.inference.task import TaskCode
from homeport.inference.http.completions import Completion, prompt_of, sampling_of
from homeport.ports.engine import EngineFailed


def test_a_conversation_becomes_text() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": parts}]
    assert prompt_of({"messages": messages}, is_chat=True) == "system: Be short.\nuser: Hello\nassistant:"
    assert prompt_of({"prompt": "Once"}, is_chat=False) == "Once"
    assert prompt_of({"prompt": ["Once"]}, is_chat=False) == "Once"


@pytest.mark.parametrize(
    ("data", "is_chat"),
    [
        ({"prompt": 5}, False),
        ({"prompt": ["two", "prompts"]}, False),
        ({"prompt": [1, 2]}, False),
        ({}, True),
        ({"messages": "hi"}, True),
        ({"messages": ["hi"]}, True),
        ({"messages": [{"content": 5}]}, True),
        ({"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}, True),
    ],
)
def test_what_such_an_engine_cannot_be_asked_is_refused_and_not_its_fault(data: Any, *, is_chat: bool) -> None:
    with pytest.raises(EngineFailed) as refused:
        prompt_of(data, is_chat=is_chat)
    assert refused.value.task_code is TaskCode.INVALID_PARAMS


def test_temperature_and_top_p_are_passed_on_as_numbers() -> None:
    assert sampling_of({"temperature": 0.5, "top_p": 1, "stop": "x", "n": 1}) == {"temperature": 0.5, "top_p": 1}
    assert sampling_of({"temperature": None}) == {}


@pytest.mark.parametrize("wrong", ["hot", True, []])
def test_what_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(EngineFailed, match="temperature must be a number"):
        sampling_of({"temperature": wrong})


@pytest.mark.parametrize(
    ("is_chat", "prefix", "kind"), [(True, "chatcmpl-", "chat.completion"), (False, "cmpl-", "text_completion")]
)
def test_an_answer_has_its_head_on_every_document(*, is_chat: bool, prefix: str, kind: str) -> None:
    answer = Completion("m", 1_700_000_000, is_chat=is_chat)
    sent = answer.chunk("a") + answer.chunk("b") + answer.last("length", (4, 2))
    frames = [json.loads(line[6:]) for line in sent.decode().split("\n\n") if line.startswith("data: {")]
    assert sent.endswith(b"data: [DONE]\n\n")
    assert len({each["id"] for each in frames}) == 1
    assert frames[0]["id"].startswith(prefix)
    assert {each["created"] for each in frames} == {1_700_000_000}
    assert [each["choices"][0]["finish_reason"] for each in frames[:3]] == [None, None, "length"]
    assert frames[3]["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    if is_chat:
        assert [each["choices"][0]["delta"].get("role") for each in frames[:2]] == ["assistant", None]
    whole = answer.whole("ab", "stop", 4, 2)
    assert (whole["object"], whole["choices"][0]["finish_reason"]) == (kind, "stop")
