"""Reads how many tokens an OpenAI-style answer used, without decoding what is passed through."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from homeport.core.inference.task import estimate_tokens
from homeport.ports.engine import EngineFailed, count_of

EVENT_BYTES_MAX: Final = 4 * 1024 * 1024
_GIVEN: Final = ("messages", "prompt", "input", "query", "documents", "tools")
_TEXTS: Final = ("role", "content", "text", "arguments", "function", "tool_calls", "name", "description")
"""Of a message, its parts and tools; images and audio are not texts."""
DEPTH_MAX: Final = 8
N = TypeVar("N", int, None)
_DONE: Final = b"data: [DONE]"


class StreamMeter:
    """Passes whole events on. Only the one with the usage is decoded, and left out where it was not asked for."""

    def __init__(self, *, shows_usage: bool) -> None:
        self._shows_usage = shows_usage
        self._rest = b""
        self._events = 0
        self._usage: dict[str, Any] | None = None
        self.is_done = False

    @property
    def tokens_in(self) -> int | None:
        """None where the engine has not said it, as before the end of a stream."""
        return _count(self._usage, "prompt_tokens", None)

    @property
    def tokens_out(self) -> int:
        """As the engine says; else events are counted, of which each but the last two is about a token."""
        return _count(self._usage, "completion_tokens", max(self._events - 2 * self.is_done, 0))

    def feed(self, chunk: bytes) -> bytes:
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n")
        if self._rest:
            chunk, self._rest = self._rest + chunk, b""
        if not chunk.endswith(b"\n\n"):
            cut = chunk.rfind(b"\n\n") + 2
            chunk, self._rest = (b"", chunk) if cut == 1 else (chunk[:cut], chunk[cut:])
            if len(self._rest) > EVENT_BYTES_MAX:
                raise EngineFailed("The engine sent an event that never ends.")
        self._events += chunk.count(b"\n\n")
        if b'"usage":{' in chunk or b'"usage": {' in chunk:
            chunk = self._without_usage(chunk)
        if _DONE in chunk:
            self.is_done = True
        return chunk

    def _without_usage(self, chunk: bytes) -> bytes:
        kept = []
        for event in chunk.split(b"\n\n")[:-1]:
            is_only_usage = False
            if b'"usage"' in event and event.startswith(b"data: {"):
                is_only_usage = self._read(event[6:])
            if not is_only_usage or self._shows_usage:
                kept.append(event + b"\n\n")
        return b"".join(kept)

    def _read(self, text: bytes) -> bool:
        """Whether the event has nothing but the usage."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise EngineFailed("The engine sent something that cannot be read.") from error
        if isinstance(found.get("usage"), dict):
            self._usage = found["usage"]
        return not found.get("choices")


def usage_of(content: bytes) -> tuple[int | None, int]:
    """Tokens in and out of a whole answer; None and 0 where it does not say."""
    try:
        usage = json.loads(content).get("usage")
    except (ValueError, AttributeError, RecursionError):
        return None, 0
    found = usage if isinstance(usage, dict) else None
    return _count(found, "prompt_tokens", None), _count(found, "completion_tokens", 0)


def estimate_of(data: Mapping[str, Any] | None) -> int:
    """About how many tokens a request gives to an engine: the texts of messages, prompt, input, query and documents.
    0 for what is not JSON."""
    return 0 if data is None else sum(_estimated(data[name]) for name in _GIVEN if name in data)


def _estimated(value: Any, depth: int = 0) -> int:
    if isinstance(value, str):
        return estimate_tokens(value)
    if depth > DEPTH_MAX:
        return 0
    if isinstance(value, list):
        return sum(1 if isinstance(each, int) else _estimated(each, depth + 1) for each in value)
    if isinstance(value, dict):
        return sum(_estimated(value[name], depth + 1) for name in _TEXTS if name in value)
    return 0


def _count(usage: dict[str, Any] | None, name: str, otherwise: N) -> int | N:
    value = None if usage is None else count_of(usage.get(name))
    return otherwise if value is None else value
