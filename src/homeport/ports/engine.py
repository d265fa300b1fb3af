"""An inference engine, as the task plane sees it: health, properties, a stream of tokens. One adapter per engine."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from homeport.core.inference.task import TaskCode
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass


class EngineFailed(HomeportError):
    """The engine could not carry out a task."""

    code = "engine-failed"

    def __init__(
        self,
        message: str,
        task_code: TaskCode = TaskCode.WORKER_RESET,
        *,
        status: int = 0,
        is_lost: bool = False,
    ) -> None:
        super().__init__(message)
        self.task_code = task_code
        self.status = status
        """What the engine answered; 0 where it did not."""
        self.is_lost = is_lost
        """It could not be connected to, or broke the connection off: whether it still runs is open."""

    @property
    def is_fault(self) -> bool:
        """Whether the engine is to blame: the breaker counts it. One that has no free slot is not broken."""
        return self.task_code not in {TaskCode.INVALID_PARAMS, TaskCode.REPLICA_EXHAUSTED}

    @property
    def may_be_the_request(self) -> bool:
        """It answered with no success, as llama.cpp does for some requests that are wrong. Only what another replica
        answers to the same request shows which of both is to blame."""
        return self.is_fault and self.status > 0

    @property
    def may_go_elsewhere(self) -> bool:
        """Whether another replica may do better."""
        return self.task_code is not TaskCode.INVALID_PARAMS


@dataclass(frozen=True, slots=True)
class Health:
    live: bool
    ready: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class Props:
    """None: the engine does not say."""

    slots_total: int | None = None
    slots_free: int | None = None
    ctx_max: int | None = None
    models: tuple[str, ...] = ()
    engine_version: str = ""
    kv_usage_ratio: float | None = None
    """How full its cache is, from 0 to 1."""
    seed_field: str = ""
    """What its model calls the seed, where the kind of engine does not decide it."""
    loaded: tuple[str, ...] | None = None
    """Which of several models it has in memory, where it loads each when it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What an engine is asked to complete."""

    model: str
    prompt: str
    max_tokens: int
    seed: int | None = None
    seed_field: str = ""
    """As its properties have it."""
    is_deterministic: bool = False
    """Temperature 0 and a fixed order of batches, as far as the engine can."""
    is_cold: bool = False
    """Nothing of earlier answers may be used, as for a measurement."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """What `/v1` asks of an engine that has none of its own: others read it in the request itself."""


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """The texts of one or more tokens that arrived together."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Finished:
    tokens_in: int | None = None
    tokens_out: int | None = None
    finish_reason: str = "stop"
    tokens_cached: int | None = None
    """What the engine keeps of prompt and answer for the next turn; None where it does not say."""


def count_of(value: object) -> int | None:
    """A number of tokens or slots that an engine says; None for what cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


class EngineExchange(Protocol):
    """One HTTP answer of an engine, for what is passed through."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]: ...


class InferenceEngine(Protocol):
    speaks_openai: bool
    """Whether `/v1` paths can be passed through."""

    async def health(self) -> Health:
        """Never raises: an engine that cannot be reached is not live, with the reason."""
        ...

    async def props(self) -> Props:
        """Raises EngineFailed where the engine does not answer."""
        ...

    def generate(self, request: Generation) -> AsyncIterator[TokenTexts | Finished]:
        """Ends with exactly one `Finished`, or raises EngineFailed. Closing the iterator cancels the task in the
        engine."""
        ...

    async def embed(self, model: str, inputs: Sequence[str]) -> Sequence[Sequence[float]]: ...
    async def rerank(self, model: str, query: str, documents: Sequence[str]) -> Sequence[float]: ...

    async def open(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> "OpenExchange":
        """Sends a request as it is (`path` begins with /v1/). Raises EngineFailed before the answer begins."""
        ...

    async def close(self) -> None: ...


class OpenExchange(EngineExchange, Protocol):
    def close(self) -> None:
        """Ends the request in the engine too, if it is still under way."""
        ...
