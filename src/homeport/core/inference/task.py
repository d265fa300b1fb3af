"""One inference task, the codes of its refusals, and what it wishes of placement."""

from dataclasses import field
from enum import StrEnum
from typing import Any, Final

from homeport.lazy_dataclass import dataclass

CTX_CAP: Final = 32_768
MAX_TOKENS_CAP: Final = 50_000
"""The contract's reference limits, for pools that do not say their own."""


class WorkloadKind(StrEnum):
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RERANK = "rerank"


class Priority(StrEnum):
    INTERACTIVE = "interactive"
    BATCH = "batch"


class PoolPlacementMode(StrEnum):
    PIN = "pin"
    PREFER = "prefer"
    AUTO = "auto"


class TaskCode(StrEnum):
    """Codes of the contract; `INTERNAL` is our own fault."""

    INVALID_PARAMS = "INVALID_PARAMS"
    DEADLINE_UNMET = "DEADLINE_UNMET"
    ADMISSION_REJECT = "ADMISSION_REJECT"
    QUEUE_FULL_DROP_LRU = "QUEUE_FULL_DROP_LRU"
    POOL_UNREADY = "POOL_UNREADY"
    POOL_UNAVAILABLE = "POOL_UNAVAILABLE"
    REPLICA_EXHAUSTED = "REPLICA_EXHAUSTED"
    DECODE_TIMEOUT = "DECODE_TIMEOUT"
    WORKER_RESET = "WORKER_RESET"
    INTERNAL = "INTERNAL"
    MODEL_DEPRECATED = "MODEL_DEPRECATED"
    UNTRUSTED_ARTIFACT = "UNTRUSTED_ARTIFACT"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"


STATUS: Final[dict[TaskCode, int]] = {
    TaskCode.INVALID_PARAMS: 400,
    TaskCode.DEADLINE_UNMET: 400,
    TaskCode.ADMISSION_REJECT: 429,
    TaskCode.QUEUE_FULL_DROP_LRU: 429,
    TaskCode.POOL_UNREADY: 503,
    TaskCode.POOL_UNAVAILABLE: 503,
    TaskCode.REPLICA_EXHAUSTED: 503,
    TaskCode.DECODE_TIMEOUT: 504,
    TaskCode.WORKER_RESET: 502,
    TaskCode.INTERNAL: 500,
    TaskCode.MODEL_DEPRECATED: 400,
    TaskCode.UNTRUSTED_ARTIFACT: 400,
    TaskCode.NOT_FOUND: 404,
    TaskCode.CONFLICT: 409,
}
RETRIABLE: Final = frozenset(
    {
        TaskCode.ADMISSION_REJECT,
        TaskCode.QUEUE_FULL_DROP_LRU,
        TaskCode.POOL_UNREADY,
        TaskCode.POOL_UNAVAILABLE,
        TaskCode.REPLICA_EXHAUSTED,
        TaskCode.DECODE_TIMEOUT,
        TaskCode.WORKER_RESET,
    }
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a task is not accepted, or ended badly: the contract's error envelope."""

    code: TaskCode
    message: str
    engine: str | None = None
    pool_id: str | None = None
    retry_after_ms: int | None = None
    policy_label: str | None = None
    field: str | None = None

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE

    @property
    def status(self) -> int:
        return STATUS[self.code]

    def to_data(self) -> dict[str, Any]:
        found = {
            "code": self.code.value,
            "message": self.message,
            "engine": self.engine,
            "pool_id": self.pool_id,
            "retriable": self.is_retriable,
            "retry_after_ms": self.retry_after_ms,
            "policy_label": self.policy_label,
        }
        return {name: value for name, value in found.items() if value is not None}


class TaskRefused(Exception):
    """Carries a refusal to where it is answered."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class PlacementWish:
    mode: PoolPlacementMode = PoolPlacementMode.AUTO
    pin_pool_id: str | None = None
    prefer_pools: tuple[str, ...] = ()
    avoid_pools: tuple[str, ...] = ()
    require_device_mask: str | None = None
    allow_fallback: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    task_id: str
    session_id: str
    workload: WorkloadKind
    model_ref: str
    priority: Priority
    max_tokens: int
    deadline_ms: int
    ctx: int = 0
    engine: str | None = None
    """None where the front door does not ask for one (`/v1`)."""
    seed: int | None = None
    determinism: str = "best_effort"
    sampler_profile_version: str | None = None
    prompt: str = ""
    inputs: tuple[str, ...] = ()
    expected_tokens: int | None = None
    kv_hint: str = "reuse"
    output_mode: str | None = None
    wish: PlacementWish = field(default_factory=PlacementWish)
    prompt_tokens_estimate: int = 0
    """Of all that the engine is given."""
    text_tokens_max: int | None = None
    """Of the longest text, where the engine computes each by itself: what is embedded, or ranked with its query."""
    prefix: int | None = None
    """A hash of the beginning of a long prompt; equal ones may share a replica's cache."""

    @property
    def context_tokens(self) -> int:
        """About how large a context it needs."""
        if self.text_tokens_max is not None:
            return self.text_tokens_max
        return self.prompt_tokens_estimate + self.max_tokens


def estimate_tokens(text: str) -> int:
    """Before the engine has counted: four bytes of UTF-8 are about a token. Only for limits and forecasts."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4
