"""Triton Inference Server with a text model: its generate extension streams `text_output`. It has no `/v1`."""

from collections.abc import Mapping
from typing import Any, Final

from homeport.adapters.engine.dialect import Dialect, Piece, ready_when_ok
from homeport.ports.engine import Generation, Props


def generate(request: Generation) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "text_input": request.prompt,
        "max_tokens": request.max_tokens,
        "stream": True,
        **request.extra,
    }
    if request.seed is not None:
        body["random_seed"] = request.seed
    if request.is_deterministic:
        body["temperature"] = 0
    return f"/v2/models/{request.model}/generate_stream", body


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
    health_path="/v2/health/ready",
    judge_health=ready_when_ok,
    props_paths=("/v2",),
    read_props=read_props,
    generate=generate,
    read_piece=read_piece,
    ends_with_close=True,
)
