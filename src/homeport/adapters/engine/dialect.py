"""How one engine is spoken to over HTTP, as values and pure functions; `http` does the speaking."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from homeport.core.inference.engines.answers import message_of
from homeport.lazy_dataclass import dataclass
from homeport.ports.engine import Finished, Generation, Health, Props


class Framing(StrEnum):
    SSE = "sse"
    """`data: {…}` and an empty line; `data: [DONE]` ends it."""
    LINES = "lines"
    """A JSON document on each line."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one message of the stream says. `error` ends it as the engine's fault."""

    text: str = ""
    finished: Finished | None = None
    reason: str = ""
    """Why the answer ended, where the engine says it before it says how much it was, or never says that."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    name: str
    framing: Framing = Framing.SSE
    speaks_openai: bool = True
    health_path: str
    """With `{model}` where the engine is asked about one; `props_paths` too."""
    judge_health: Callable[[int, Any], Health]
    props_paths: Sequence[str] = ()
    """Those that answer are read; the others are left out."""
    read_props: Callable[[Mapping[str, Any]], Props] = lambda answers: Props()
    generate: Callable[[Generation], tuple[str, dict[str, Any]]]
    read_piece: Callable[[Any], Piece]
    ends_with_close: bool = False
    """The stream of this engine simply ends; others say that they have finished."""
    embed: Callable[[str, Sequence[str]], tuple[str, dict[str, Any]]] | None = None
    read_embeddings: Callable[[Any], Sequence[Sequence[float]]] | None = None
    rerank: Callable[[str, str, Sequence[str]], tuple[str, dict[str, Any]]] | None = None
    read_scores: Callable[[Any], Sequence[float]] | None = None


def ready_when_ok(status: int, body: Any) -> Health:
    if status == 200:
        return Health(live=True, ready=True)
    said = message_of(body)
    why = f"the engine answered {status}" + (f": {said}" if said else "")
    return Health(live=status in {429, 503}, ready=False, error=why)


def openai_embeddings(body: Any) -> Sequence[Sequence[float]]:
    return [each["embedding"] for each in sorted(body["data"], key=lambda each: each.get("index", 0))]


def embed_openai(model: str, inputs: Sequence[str]) -> tuple[str, dict[str, Any]]:
    return "/v1/embeddings", {"model": model, "input": list(inputs)}


def complete_openai(request: Generation) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.is_deterministic:
        body |= {"temperature": 0, "top_p": 1}
    return "/v1/completions", body


def read_openai(message: Any) -> Piece:
    if "error" in message:
        error = message["error"]
        return Piece(error=str(error.get("message") if isinstance(error, Mapping) else error))
    usage, choices = message.get("usage"), message.get("choices") or ()
    text, reason = (choices[0].get(name) or "" for name in ("text", "finish_reason")) if choices else ("", "")
    # Some servers say with every message how much it was so far.
    is_last = usage and (reason or not choices)
    done = Finished(usage.get("prompt_tokens"), usage.get("completion_tokens")) if is_last else None
    return Piece(text=text, finished=done, reason=reason)


def openai_models(answer: Any) -> tuple[str, ...]:
    return tuple(str(each["id"]) for each in (answer or {}).get("data", ()) if each.get("id"))


def rerank_openai(model: str, query: str, documents: Sequence[str]) -> tuple[str, dict[str, Any]]:
    return "/v1/rerank", {"model": model, "query": query, "documents": list(documents)}


def openai_scores(body: Any) -> Sequence[float]:
    return [float(each["relevance_score"]) for each in sorted(body["results"], key=lambda each: each["index"])]
