"""Refusals and problem documents in the two shapes of the task plane: the contract's envelope, and OpenAI's."""

import math
from collections.abc import Mapping
from typing import Any, Final

from homeport.core.inference.engines.answers import error_of, sentence_of
from homeport.core.inference.task import Refusal, TaskCode
from homeport.inference.http.exchange import Exchange

_AUTH_CODES: Final = {401: "40102 BAD_TOKEN", 403: "40302 NOT_AUTHORIZED"}
_CODES: Final = {
    404: TaskCode.NOT_FOUND,
    409: TaskCode.CONFLICT,
    429: TaskCode.ADMISSION_REJECT,
    503: TaskCode.POOL_UNAVAILABLE,
}
_OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def task_headers(refusal: Refusal) -> dict[str, str]:
    if refusal.retry_after_ms is None:
        return {}
    seconds = max(1, math.ceil(refusal.retry_after_ms / 1000))
    return {"retry-after": str(seconds), "x-backoff-ms": str(refusal.retry_after_ms)}


async def refuse_task(exchange: Exchange, refusal: Refusal) -> None:
    exchange.scope["state"]["recorded"] = True
    await exchange.json(refusal.status, refusal.to_data(), task_headers(refusal))


async def refuse_openai(exchange: Exchange, refusal: Refusal) -> None:
    exchange.scope["state"]["recorded"] = True
    await exchange.json(openai_status(refusal), {"error": openai_error(refusal)}, task_headers(refusal))


def openai_status(refusal: Refusal) -> int:
    return 404 if refusal.field == "model" else refusal.status


def openai_error(refusal: Refusal) -> dict[str, Any]:
    code = "model_not_found" if refusal.field == "model" else refusal.code.value.lower()
    if refusal.status == 429:
        code = "rate_limit_exceeded"
    param = "model" if refusal.field == "model_ref" else refusal.field
    return _openai(openai_status(refusal), refusal.message, code, param)


def openai_from_engine(status: int, content: bytes) -> dict[str, Any]:
    """What an engine refused, in its own words and in OpenAI's shape: llama.cpp has a number as its code, others have
    no object at all."""
    said = error_of(content)
    kind, code, param = said.get("type"), said.get("code"), said.get("param")
    message = said["message"] or sentence_of(status, content)
    found = _openai(status, message, TaskCode.INVALID_PARAMS.value.lower(), param if isinstance(param, str) else None)
    if isinstance(kind, str):
        found["type"] = kind
    if isinstance(code, str):
        found["code"] = code
    return {**said, **found}


def from_problem(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """The contract's envelope of a problem document; for authentication its own codes."""
    status = int(problem.get("status", 500))
    message = _sentence(problem)
    if status in _AUTH_CODES:
        code = _AUTH_CODES[status]
        if problem.get("code") == "unauthenticated" and "needs an access token" in message:
            code = "40101 MISSING_TOKEN"
        return {"code": code, "message": message, "hint": problem.get("hint") or ""}
    kind = _CODES.get(status, TaskCode.INTERNAL if status >= 500 else TaskCode.INVALID_PARAMS)
    seconds = problem.get("retryAfterSeconds")
    retry_ms = None if seconds is None else 1000 * int(seconds)
    label = str(problem.get("code")) if status == 429 else None
    return Refusal(kind, message, retry_after_ms=retry_ms, policy_label=label).to_data()


def openai_from_problem(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    code = "invalid_api_key" if problem.get("status") == 401 else str(problem.get("code", "internal"))
    return {"error": _openai(int(problem.get("status", 500)), _sentence(problem), code, None)}


def _sentence(problem: Mapping[str, Any]) -> str:
    return " ".join(str(problem[name]) for name in ("detail", "hint") if problem.get(name))


def _openai(status: int, message: str, code: str, param: str | None) -> dict[str, Any]:
    kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"message": message, "type": kind, "param": param, "code": code}
