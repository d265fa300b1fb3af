"""How many tokens a request of `/v1` gives to an engine, where the engine has not said it."""

from typing import Any

import pytest

from homeport.inference.http.usage import estimate_of


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
