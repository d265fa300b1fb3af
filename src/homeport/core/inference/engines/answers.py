"""What an engine's refusal means for the task: whose fault it is, and what was said. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from homeport.core.inference.task import TaskCode

TEXT_MAX: Final = 300
_WRONG_REQUEST: Final = frozenset({400, 404, 405, 413, 415, 422, 501})
"""501 is llama.cpp's answer to embeddings or reranking when it was not started for them: no fault of the engine, or
a caller that asks for what it lacks would have its breaker take it from all others."""
_FULL: Final = 429


def is_success(status: int) -> bool:
    """Redirects are none: what an engine redirects to is not the engine."""
    return 200 <= status < 300


def code_of_status(status: int) -> TaskCode:
    """Of an answer with a status that means failure, or a redirect."""
    if status in _WRONG_REQUEST:
        return TaskCode.INVALID_PARAMS
    return TaskCode.REPLICA_EXHAUSTED if status == _FULL else TaskCode.WORKER_RESET


def error_of(content: bytes) -> Mapping[str, Any]:
    """The error object of an answer, with a text as `message`; engines write it in several forms."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {"message": ""}
    return _error_in(found)


def message_of(answer: Any) -> str:
    """What an answer that was read as JSON says is wrong; empty where it says nothing."""
    return str(_error_in(answer)["message"])


def _error_in(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        return {"message": ""}
    error = found.get("error", found.get("message", found.get("detail", "")))
    if not isinstance(error, Mapping):
        error = {"message": error}
    message = error.get("message")
    return {**error, "message": message[:TEXT_MAX] if isinstance(message, str) else ""}


def sentence_of(status: int, content: bytes) -> str:
    said = error_of(content)["message"].rstrip(".")
    return f"The engine answered {status}: {said}." if said else f"The engine answered {status}."
