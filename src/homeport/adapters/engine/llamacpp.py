"""llama.cpp's own server: `/completion` streams, `/props` and `/slots` tell how full it is."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.adapters.engine.dialect import (
    Dialect,
    Piece,
    embed_openai,
    openai_embeddings,
    openai_models,
    openai_scores,
    ready_when_ok,
    rerank_openai,
)
from homeport.ports.engine import Finished, Generation, Props, count_of


def generate(request: Generation) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "prompt": request.prompt,
        "n_predict": request.max_tokens,
        "stream": True,
        "cache_prompt": not request.is_cold,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.is_deterministic:
        # Reused cache entries may have been computed in other batches, with other rounding.
        body |= {"temperature": 0, "top_p": 1, "cache_prompt": False}
    return "/completion", body


def read_piece(message: Any) -> Piece:
    if "error" in message:
        return Piece(error=str(message["error"].get("message", message["error"])))
    if not message.get("stop"):
        return Piece(text=message.get("content", ""))
    reason = "length" if message.get("stop_type") == "limit" else "stop"
    counts = (message.get("tokens_evaluated"), message.get("tokens_predicted"))
    done = Finished(*counts, reason, message.get("tokens_cached"))
    return Piece(text=message.get("content", ""), finished=done)


def read_props(answers: Mapping[str, Any]) -> Props:
    props, slots = answers.get("/props") or {}, answers.get("/slots")
    total = props.get("total_slots")
    settings = props.get("default_generation_settings") or {}
    return Props(
        slots_total=total,
        slots_free=None if slots is None else sum(not each.get("is_processing") for each in slots),
        ctx_max=settings.get("n_ctx"),
        models=openai_models(answers.get("/v1/models")),
        engine_version=str(props.get("build_info") or ""),
        kv_usage_ratio=_cache_usage(slots or ()),
    )


def _cache_usage(slots: Sequence[Mapping[str, Any]]) -> float | None:
    """Each slot says how many tokens it holds, and how many it can hold; one that was never used has had no task yet.
    Older servers do not say it."""
    held = [count_of(each.get("n_prompt_tokens", None if "id_task" in each else 0)) for each in slots]
    most = [count_of(each.get("n_ctx")) for each in slots]
    if None in held or None in most or not any(most):
        return None
    return min(1.0, sum(filter(None, held)) / sum(filter(None, most)))


DIALECT: Final = Dialect(
    name="llamacpp",
    health_path="/health",
    judge_health=ready_when_ok,
    props_paths=("/props", "/slots", "/v1/models"),
    read_props=read_props,
    generate=generate,
    read_piece=read_piece,
    embed=embed_openai,
    read_embeddings=openai_embeddings,
    rerank=rerank_openai,
    read_scores=openai_scores,
)
