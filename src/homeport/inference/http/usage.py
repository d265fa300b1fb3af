"""Reads how many tokens an OpenAI-style answer used, without decoding what is passed through."""

import json
from typing import Any, Final

from homeport.ports.engine import EngineFailed, count_of

EVENT_BYTES_MAX: Final = 4 * 1024 * 1024
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
    def tokens_in(self) -> int:
        return _count(self._usage, "prompt_tokens", 0)

    @property
    def tokens_out(self) -> int:
        """As the engine says; else events are counted, of which each is about a token."""
        return _count(self._usage, "completion_tokens", max(self._events - 2, 0))

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


def usage_of(content: bytes) -> tuple[int, int]:
    """Tokens in and out of a whole answer; 0 where it does not say."""
    try:
        usage = json.loads(content).get("usage")
    except (ValueError, AttributeError, RecursionError):
        return 0, 0
    found = usage if isinstance(usage, dict) else None
    return _count(found, "prompt_tokens", 0), _count(found, "completion_tokens", 0)


def _count(usage: dict[str, Any] | None, name: str, otherwise: int) -> int:
    value = None if usage is None else count_of(usage.get(name))
    return otherwise if value is None else value
