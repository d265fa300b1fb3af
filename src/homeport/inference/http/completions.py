"""Completions in OpenAI's form, of engines that have no `/v1`: what is asked of them, and what they say."""

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from homeport.core.inference.task import TaskCode
from homeport.ports.engine import EngineFailed

SAMPLING: Final = ("temperature", "top_p")
"""What such engines call the same, and read as the same numbers."""


def sampling_of(data: Mapping[str, Any]) -> dict[str, float]:
    """Raises EngineFailed."""
    found = {name: data[name] for name in SAMPLING if data.get(name) is not None}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _refused(f"{name} must be a number.")
    return found


def prompt_of(data: Mapping[str, Any], *, is_chat: bool) -> str:
    """A conversation as plain text: such an engine has no template for it. Raises EngineFailed."""
    if not is_chat:
        prompt = data.get("prompt", "")
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if not isinstance(prompt, str):
            raise _refused("prompt must be a text.")
        return prompt
    messages = data.get("messages")
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise _refused("messages must be a list of objects.")
    lines = [f"{each.get('role')}: {_text_of(each.get('content'))}" for each in messages]
    return "\n".join([*lines, "assistant:"])


def _text_of(content: Any) -> str:
    """A text, or parts that are texts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _refused("content of a message must be a text or a list of parts.")
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise _refused("This engine takes texts only: no images, no sound.")
    return "".join(part["text"] for part in content)


def _refused(text: str) -> EngineFailed:
    return EngineFailed(text, TaskCode.INVALID_PARAMS)


class Completion:
    """Builds the documents of one answer."""

    def __init__(self, model: str, created: int, *, is_chat: bool) -> None:
        """`created` in seconds of the epoch."""
        self._is_chat = is_chat
        kind, prefix = ("chat.completion", "chatcmpl") if is_chat else ("text_completion", "cmpl")
        self._head = {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": created, "model": model}
        self._is_first = True

    def chunk(self, text: str) -> bytes:
        choice: dict[str, Any] = {"text": text}
        if self._is_chat:
            choice = {"delta": {**({"role": "assistant"} if self._is_first else {}), "content": text}}
        self._is_first = False
        return self._frame([{"index": 0, **choice, "finish_reason": None}])

    def last(self, reason: str, usage: tuple[int, int] | None) -> bytes:
        choice: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
        end = self._frame([{"index": 0, **choice, "finish_reason": reason}])
        if usage is not None:
            end += self._frame([], usage=_usage(*usage))
        return end + b"data: [DONE]\n\n"

    def whole(self, text: str, reason: str, tokens_in: int, tokens_out: int) -> dict[str, Any]:
        choice = {"message": {"role": "assistant", "content": text}} if self._is_chat else {"text": text}
        return {
            **self._head,
            "choices": [{"index": 0, **choice, "finish_reason": reason}],
            "usage": _usage(tokens_in, tokens_out),
        }

    def _frame(self, choices: list[dict[str, Any]], **rest: Any) -> bytes:
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        return b"data: " + json.dumps({**self._head, "object": kind, "choices": choices, **rest}).encode() + b"\n\n"


def _usage(tokens_in: int, tokens_out: int) -> dict[str, int]:
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
