"""Text Generation Inference: `/generate_stream` and `/info`. Its Messages API is passed through for `/v1`. It neither
embeds nor reranks."""

from collections.abc import Mapping
from typing import Any, Final

from homeport.adapters.engine.dialect import Dialect, Piece, ready_when_ok
from homeport.ports.engine import Finished, Generation, Props


def generate(request: Generation) -> tuple[str, dict[str, Any]]:
    parameters: dict[str, Any] = {"max_new_tokens": request.max_tokens, "details": True}
    if request.seed is not None:
        parameters["seed"] = request.seed
    if request.is_deterministic:
        parameters["do_sample"] = False
    return "/generate_stream", {"inputs": request.prompt, "parameters": parameters}


def read_piece(message: Any) -> Piece:
    if "error" in message:
        return Piece(error=str(message["error"]))
    token = message.get("token") or {}
    text = "" if token.get("special") else token.get("text", "")
    if message.get("generated_text") is None:
        return Piece(text=text)
    details = message.get("details") or {}
    reason = "length" if details.get("finish_reason") == "length" else "stop"
    return Piece(text=text, finished=Finished(details.get("input_length"), details.get("generated_tokens"), reason))


def read_props(answers: Mapping[str, Any]) -> Props:
    info = answers.get("/info") or {}
    return Props(
        slots_total=info.get("max_concurrent_requests"),
        ctx_max=info.get("max_total_tokens"),
        models=(str(info["model_id"]),) if info.get("model_id") else (),
        engine_version=str(info.get("version") or ""),
    )


DIALECT: Final = Dialect(
    name="tgi",
    health_path="/health",
    judge_health=ready_when_ok,
    props_paths=("/info",),
    read_props=read_props,
    generate=generate,
    read_piece=read_piece,
)
