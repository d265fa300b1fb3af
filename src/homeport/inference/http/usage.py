"""Reads how many tokens an answer of `/v1` used, without decoding what is passed through.

OpenAI's completions and responses and Anthropic's messages, which engines offer too, each name them in their own way.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from homeport.core.inference.engines.messages import MessageBuffer, data_of
from homeport.core.inference.task import estimate_tokens
from homeport.ports.engine import EngineFailed, count_of

EVENT_BYTES_MAX: Final = 4 * 1024 * 1024
_GIVEN: Final = ("messages", "prompt", "input", "instructions", "system", "query", "documents", "tools")
_TEXTS: Final = ("role", "content", "text", "arguments", "function", "tool_calls", "name", "description")
"""Of a message, its parts and tools; images and audio are not texts."""
DEPTH_MAX: Final = 8
N = TypeVar("N", int, None)
_DONE: Final = re.compile(rb"(?:\A|\n)data: ?\[DONE\]")
_TOKENS_IN: Final = ("prompt_tokens", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Together what went in: Anthropic counts what its cache had apart. No answer has the first two."""
_TOKENS_OUT: Final = ("completion_tokens", "output_tokens")


class StreamMeter:
    """Passes whole events on. Only those with the usage are decoded, and left out where it was not asked for."""

    def __init__(self, *, shows_usage: bool, is_completion: bool = True) -> None:
        """`is_completion`: completions say that they have finished; other streams simply end."""
        self._shows_usage = shows_usage
        self._is_completion = is_completion
        self._buffer = MessageBuffer()
        self._events = 0
        self._usage: dict[str, Any] = {}
        self._has_finished = False

    @property
    def is_done(self) -> bool:
        return self._has_finished or not self._is_completion

    @property
    def tokens_in(self) -> int | None:
        """None where the engine has not said it, as before the end of a stream."""
        return _counted(self._usage, _TOKENS_IN, None)

    @property
    def tokens_out(self) -> int:
        """As the engine says; else events are counted, of which each but the last two is about a token."""
        return _counted(self._usage, _TOKENS_OUT, max(self._events - 2 * self._has_finished, 0))

    def feed(self, chunk: bytes) -> bytes:
        buffer = self._buffer
        chunk = buffer.feed(chunk)
        if not chunk:
            if buffer.size > EVENT_BYTES_MAX:
                raise EngineFailed("The engine sent an event that never ends.")
            return chunk
        self._events += chunk.count(b"\n\n")
        if b'"usage":{' in chunk or b'"usage": {' in chunk:
            chunk = self._without_usage(chunk)
        if not self._has_finished and _says_finished(chunk):
            self._has_finished = True
        return chunk

    def rest(self) -> bytes:
        """At the end of the stream: an event that the engine has not ended, ended."""
        rest = self._buffer.rest()
        return self.feed(b"\n\n") if rest.strip() else b""

    def _without_usage(self, chunk: bytes) -> bytes:
        kept = []
        for event in chunk.split(b"\n\n")[:-1]:
            is_only_usage = b'"usage"' in event and self._read(data_of(event))
            if not is_only_usage or self._shows_usage:
                kept.append(event + b"\n\n")
        return b"".join(kept)

    def _read(self, text: bytes) -> bool:
        """Whether the event has nothing but the usage."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise EngineFailed("The engine sent something that cannot be read.") from error
        self._usage |= _usage_in(found)
        return isinstance(found, dict) and found.get("choices") == []


def _says_finished(chunk: bytes) -> bool:
    if b"[DONE]" in chunk and _DONE.search(chunk) is not None:
        return True
    return b'"finish_reason":"' in chunk or b'"finish_reason": "' in chunk


def usage_of(content: bytes, *, must_be_json: bool = False) -> tuple[int | None, int]:
    """Tokens in and out of a whole answer; None and 0 where it does not say. Raises EngineFailed for what is not the
    JSON that it must be."""
    usage: Mapping[str, Any] = {}
    try:
        usage = _usage_in(json.loads(content))
    except (ValueError, RecursionError) as error:
        if must_be_json:
            raise EngineFailed("The engine sent something that cannot be read.") from error
    return _counted(usage, _TOKENS_IN, None), _counted(usage, _TOKENS_OUT, 0)


def _usage_in(found: Any) -> Mapping[str, Any]:
    """Of an answer, or of an event that has it inside the response or the message that it is about."""
    if not isinstance(found, dict):
        return {}
    for place in (found, found.get("response"), found.get("message")):
        usage = place.get("usage") if isinstance(place, dict) else None
        if isinstance(usage, dict):
            return usage
    return {}


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


def _counted(usage: Mapping[str, Any], names: tuple[str, ...], otherwise: N) -> int | N:
    counts = [count for name in names if (count := count_of(usage.get(name))) is not None]
    return sum(counts) if counts else otherwise
