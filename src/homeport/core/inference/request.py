"""An inference request of a job, or of a step of a pipeline."""

from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    model: str
    prompt: str
    max_tokens: int = 512
    priority: str = "batch"
    seed: int | None = None
    pool: str = ""
    """Only there; empty for any pool that serves the model."""
    engine: str = "any"
    context: int = 0
