"""vLLM: OpenAI's paths, and `/version`. Determinism is best effort."""

from collections.abc import Mapping
from typing import Any, Final

from homeport.adapters.engine.dialect import (
    Dialect,
    complete_openai,
    embed_openai,
    openai_embeddings,
    openai_models,
    openai_scores,
    read_openai,
    ready_when_ok,
    rerank_openai,
)
from homeport.ports.engine import Props


def read_props(answers: Mapping[str, Any]) -> Props:
    models = answers.get("/v1/models") or {}
    lengths = [each["max_model_len"] for each in models.get("data", ()) if each.get("max_model_len")]
    return Props(
        ctx_max=min(lengths) if lengths else None,
        models=openai_models(models),
        engine_version=str((answers.get("/version") or {}).get("version", "")),
    )


DIALECT: Final = Dialect(
    name="vllm",
    health_path="/v1/models",
    judge_health=ready_when_ok,
    props_paths=("/v1/models", "/version"),
    read_props=read_props,
    generate=complete_openai,
    read_piece=read_openai,
    embed=embed_openai,
    read_embeddings=openai_embeddings,
    rerank=rerank_openai,
    read_scores=openai_scores,
)
