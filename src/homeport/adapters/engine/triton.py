"""Triton Inference Server with a text model: its generate extension streams `text_output`. It has no `/v1`.

Parameters stand beside the text, as TensorRT-LLM and vLLM behind Triton both read them. A seed has TensorRT-LLM's
name: Triton's vLLM backend has another, and refuses names that it does not know.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from homeport.adapters.engine.dialect import Dialect, Piece, ready_when_ok
from homeport.ports.engine import Generation, Health, Props


def generate(request: Generation) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "text_input": request.prompt,
        "max_tokens": request.max_tokens,
        "stream": True,
        **request.sampling,
    }
    if request.seed is not None:
        body["random_seed"] = request.seed
    if request.is_deterministic:
        body["temperature"] = 0
    return f"/v2/models/{quote(request.model, safe='')}/generate_stream", body


def judge_health(status: int, body: Any) -> Health:
    """Of one model: a server that lives says so of a model that is absent or being loaded."""
    found = ready_when_ok(status, body)
    return Health(live=True, ready=False, error=found.error) if status in {400, 404} else found


def read_piece(message: Any) -> Piece:
    if "error" in message:
        return Piece(error=str(message["error"]))
    return Piece(text=str(message.get("text_output", "")))


def read_props(answers: Mapping[str, Any]) -> Props:
    server = answers.get("/v2") or {}
    return Props(engine_version=str(server.get("version") or ""))


DIALECT: Final = Dialect(
    name="triton",
    speaks_openai=False,
    health_path="/v2/models/{model}/ready",
    judge_health=judge_health,
    props_paths=("/v2",),
    read_props=read_props,
    generate=generate,
    read_piece=read_piece,
    ends_with_close=True,
)
