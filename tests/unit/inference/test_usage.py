"""How many tokens a request of `/v1` gives to an engine and gets from it, in every form in which engines say it."""

import json
from typing import Any

import pytest

from homeport.inference.http.usage import StreamMeter, estimate_of, usage_of

CHAT = [
    {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}], "usage": None},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None},
]
USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        (None, 0),
        ({"model": "m"}, 0),
        ({"prompt": "x" * 40}, 10),
        ({"prompt": ["x" * 40, "y" * 4]}, 11),
        ({"prompt": [1, 2, 3]}, 3),
        ({"input": "x" * 8}, 2),
        ({"query": "abcd", "documents": ["abcd", "abcd"]}, 3),
        ({"messages": [{"role": "user", "content": "x" * 40}]}, 11),
        ({"messages": [{"content": [{"type": "text", "text": "abcd"}, {"image_url": {"url": "data:…"}}]}]}, 1),
        ({"messages": 5, "prompt": None, "input": {"a": "b"}}, 0),
    ],
)
def test_what_a_request_gives_to_an_engine_is_estimated_from_its_texts(data: Any, tokens: int) -> None:
    assert estimate_of(data) == tokens


def test_nothing_is_nested_too_deeply_to_be_estimated() -> None:
    nested: Any = "x"
    for _ in range(5_000):
        nested = [nested]
    assert estimate_of({"messages": nested}) == 0


def _sent(*messages: Any, field: str = "data: ", line_end: str = "\n") -> bytes:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in messages]
    return "".join(f"{field}{text}{line_end}{line_end}" for text in texts).encode()


def _metered(sent: bytes, meter: StreamMeter, size: int = 7) -> bytes:
    return b"".join(meter.feed(sent[at : at + size]) for at in range(0, len(sent), size)) + meter.rest()


@pytest.mark.parametrize("field", ["data: ", "data:"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_completion_is_metered_in_every_form_of_an_event_stream(field: str, line_end: str, size: int) -> None:
    meter = StreamMeter(shows_usage=False)
    shown = _metered(_sent(*CHAT, USAGE, "[DONE]", field=field, line_end=line_end), meter, size)
    assert shown == _sent(*CHAT, "[DONE]", field=field), "without the usage, which was not asked for"
    assert (meter.is_done, meter.tokens_in, meter.tokens_out) == (True, 5, 1)


def test_a_completion_has_finished_when_it_says_so_also_without_the_last_word() -> None:
    cut, whole = StreamMeter(shows_usage=True), StreamMeter(shows_usage=True)
    _metered(_sent(CHAT[0], {"choices": [{"delta": {"content": 'data: [DONE] "finish_reason":"stop"'}}]}), cut)
    assert not cut.is_done, "what the model writes ends nothing"
    _metered(_sent(*CHAT), whole)
    assert whole.is_done


def test_an_engine_that_does_not_end_its_last_event_has_finished() -> None:
    meter = StreamMeter(shows_usage=True)
    assert _metered(_sent(*CHAT) + b"data: [DONE]", meter) == _sent(*CHAT, "[DONE]")
    assert meter.is_done


RESPONSE = {"type": "response.completed", "response": {"usage": {"input_tokens": 7, "output_tokens": 3}}}
BEGUN = {"type": "message_start", "message": {"usage": {"input_tokens": 1, "cache_read_input_tokens": 55}}}
ENDED = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 3}}


@pytest.mark.parametrize(
    ("events", "tokens"), [([("response.completed", RESPONSE)], (7, 3)), ([("x", BEGUN), ("y", ENDED)], (56, 3))]
)
def test_other_streams_are_passed_on_whole_and_simply_end(
    events: list[tuple[str, Any]], tokens: tuple[int, int]
) -> None:
    """OpenAI's responses and Anthropic's messages never say [DONE]."""
    sent = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events).encode()
    meter = StreamMeter(shows_usage=False, is_completion=False)
    assert _metered(sent, meter) == sent
    assert (meter.is_done, meter.tokens_in, meter.tokens_out) == (True, *tokens)


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 2}}, (5, 2)),
        ({"usage": {"prompt_tokens": 5, "total_tokens": 5}}, (5, 0)),
        ({"usage": {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}}, (5, 2)),
        ({"usage": {"input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 2}}, (5, 2)),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": "x"}}, (None, 0)),
        ({"usage": 5}, (None, 0)),
        ([], (None, 0)),
    ],
)
def test_the_usage_of_a_whole_answer_is_read_in_each_form(answer: Any, tokens: tuple[int | None, int]) -> None:
    assert usage_of(json.dumps(answer).encode()) == tokens
