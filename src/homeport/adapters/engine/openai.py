"""Any server that speaks OpenAI's paths, and nothing else that could be relied on."""

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
    return Props(models=openai_models(answers.get("/v1/models")))


DIALECT: Final = Dialect(
    name="openai",
    health_path="/v1/models",
    judge_health=ready_when_ok,
    props_paths=("/v1/models",),
    read_props=read_props,
    generate=complete_openai,
    read_piece=read_openai,
    embed=embed_openai,
    read_embeddings=openai_embeddings,
    rerank=rerank_openai,
    read_scores=openai_scores,
)
