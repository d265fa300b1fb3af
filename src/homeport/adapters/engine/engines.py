"""Which adapter speaks to which engine."""

from homeport.adapters.engine import llamacpp, ollama, openai, tgi, triton, vllm
from homeport.adapters.engine.dialect import Dialect
from homeport.adapters.engine.fake import FakeEngine
from homeport.adapters.engine.http import IDLE_SECONDS, HttpEngine
from homeport.core.inference.engines.handoff import EngineName, Handoff
from homeport.ports import OpenStream
from homeport.ports.engine import InferenceEngine

DIALECTS: dict[EngineName, Dialect] = {
    EngineName.LLAMACPP: llamacpp.DIALECT,
    EngineName.VLLM: vllm.DIALECT,
    EngineName.TGI: tgi.DIALECT,
    EngineName.TRITON: triton.DIALECT,
    EngineName.OLLAMA: ollama.DIALECT,
    EngineName.OPENAI: openai.DIALECT,
}


def connect(
    handoff: Handoff, opens: OpenStream | None = None, *, idle_seconds: float = IDLE_SECONDS
) -> InferenceEngine:
    """Opens nothing yet: the first request does. `opens` leads to an engine of another machine."""
    if handoff.engine is EngineName.FAKE:
        return FakeEngine()
    return HttpEngine(
        DIALECTS[handoff.engine],
        handoff.url,
        handoff.model.id,
        opens=opens,
        idle_seconds=idle_seconds,
        api_key=handoff.api_key,
    )
