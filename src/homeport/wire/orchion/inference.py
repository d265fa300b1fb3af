"""Converts the chat and embedding messages of `orchion.v1` to and from OpenAI's, which `/v1` takes."""

from collections.abc import Mapping
from typing import Any

from homeport.errors import InvalidInput, Problem
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb


def chat_to_openai(request: Any) -> dict[str, Any]:
    """A temperature or number of tokens of 0 is one that was not given. Raises InvalidInput that names the field."""
    _require_model(request)
    if not request.messages:
        raise _problem("messages", "are missing")
    if request.max_tokens < 0:
        raise _problem("max_tokens", "must be 0 or more")
    if not 0 <= request.temperature <= 2:
        raise _problem("temperature", "must be from 0 to 2")
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [{"role": each.role or "user", "content": each.content} for each in request.messages],
        "stream": request.stream,
    }
    if request.temperature:
        body["temperature"] = request.temperature
    if request.max_tokens:
        body["max_tokens"] = request.max_tokens
    return body


def embedding_to_openai(request: Any) -> dict[str, Any]:
    """Raises InvalidInput that names the field."""
    _require_model(request)
    if not request.input:
        raise _problem("input", "is missing")
    return {"model": request.model, "input": list(request.input)}


def chat_from_openai(data: Mapping[str, Any], *, model: str, now_unix: int) -> Any:
    """A whole answer, or a part of a streamed one; None for a part without a choice."""
    choices = [_choice(each) for each in data.get("choices") or () if isinstance(each, dict)]
    if not choices:
        return None
    return pb.ChatCompletionResponse(
        id=str(data.get("id") or ""),
        model=str(data.get("model") or model),
        choices=choices,
        created=_whole_number(data.get("created")) or now_unix,
        object=str(data.get("object") or ""),
    )


def embedding_from_openai(data: Mapping[str, Any], *, model: str) -> Any:
    """Raises TypeError and ValueError where an engine's answer has another form."""
    usage = data.get("usage")
    return pb.EmbeddingResponse(
        model=str(data.get("model") or model),
        data=[
            pb.Embedding(embedding=each["embedding"], index=_whole_number(each.get("index")))
            for each in data.get("data") or ()
        ],
        object=str(data.get("object") or "list"),
        usage_prompt_tokens=_whole_number(usage.get("prompt_tokens")) if isinstance(usage, dict) else 0,
    )


def _choice(found: Mapping[str, Any]) -> Any:
    said = found.get("message") or found.get("delta")
    said = said if isinstance(said, dict) else {}
    message = pb.ChatMessage(role=str(said.get("role") or "assistant"), content=str(said.get("content") or ""))
    reason = str(found.get("finish_reason") or "")
    return pb.ChatChoice(index=_whole_number(found.get("index")), message=message, finish_reason=reason)


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0


def _require_model(request: Any) -> None:
    if not request.model:
        raise _problem("model", "is missing")


def _problem(field: str, message: str) -> InvalidInput:
    return InvalidInput(problems=[Problem(field, message)])
