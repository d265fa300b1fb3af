"""Triton Inference Server with a text model: its generate extension streams `text_output`. It has no `/v1`.

Parameters stand beside the text, as TensorRT-LLM and vLLM behind Triton both read them: those that are inputs of the
model become that, the others go to its backend. TensorRT-LLM has the seed among its inputs, under one of two names;
the vLLM backend refuses names that it does not know.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from homeport.adapters.engine.dialect import Dialect, Piece, ready_when_ok
from homeport.ports.engine import Generation, Health, Props

SEED: Final = "seed"
OLDER_SEED: Final = "random_seed"
MODEL: Final = "/v2/models/{model}"


def generate(request: Generation) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "text_input": request.prompt,
        "max_tokens": request.max_tokens,
        "stream": True,
        **request.sampling,
    }
    if request.seed is not None:
        body[request.seed_field or SEED] = request.seed
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
    inputs = {each.get("name") for each in (answers.get(MODEL) or {}).get("inputs") or ()}
    return Props(
        engine_version=str(server.get("version") or ""),
        seed_field=OLDER_SEED if OLDER_SEED in inputs and SEED not in inputs else SEED,
    )


DIALECT: Final = Dialect(
    name="triton",
    speaks_openai=False,
    health_path=f"{MODEL}/ready",
    judge_health=judge_health,
    props_paths=("/v2", MODEL),
    read_props=read_props,
    generate=generate,
    read_piece=read_piece,
    ends_with_close=True,
)
