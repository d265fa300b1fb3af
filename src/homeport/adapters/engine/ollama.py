"""Ollama: `/api/generate` answers with a JSON document per line; it loads models by name itself, and `/api/ps` lists
those that it has in memory."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.adapters.engine.dialect import Dialect, Framing, Piece, ready_when_ok
from homeport.ports.engine import Finished, Generation, Props


def generate(request: Generation) -> tuple[str, dict[str, Any]]:
    options: dict[str, Any] = {"num_predict": request.max_tokens}
    if request.seed is not None:
        options["seed"] = request.seed
    if request.is_deterministic:
        options |= {"temperature": 0, "top_p": 1}
    return "/api/generate", {
        "model": request.model,
        "prompt": request.prompt,
        "stream": True,
        "raw": True,
        "options": options,
    }


def read_piece(message: Any) -> Piece:
    if "error" in message:
        return Piece(error=str(message["error"]))
    if not message.get("done"):
        return Piece(text=message.get("response", ""))
    reason = "length" if message.get("done_reason") == "length" else "stop"
    done = Finished(message.get("prompt_eval_count"), message.get("eval_count"), reason)
    return Piece(text=message.get("response", ""), finished=done)


def read_props(answers: Mapping[str, Any]) -> Props:
    running = answers.get("/api/ps")
    return Props(
        models=_names(answers.get("/api/tags")),
        loaded=None if running is None else _names(running),
        engine_version=str((answers.get("/api/version") or {}).get("version", "")),
    )


def _names(answer: Any) -> tuple[str, ...]:
    return tuple(str(each["name"]) for each in (answer or {}).get("models", ()) if each.get("name"))


def embed(model: str, inputs: Sequence[str]) -> tuple[str, dict[str, Any]]:
    return "/api/embed", {"model": model, "input": list(inputs)}


DIALECT: Final = Dialect(
    name="ollama",
    framing=Framing.LINES,
    health_path="/api/version",
    judge_health=ready_when_ok,
    props_paths=("/api/tags", "/api/version", "/api/ps"),
    read_props=read_props,
    generate=generate,
    read_piece=read_piece,
    embed=embed,
    read_embeddings=lambda body: body["embeddings"],
)
