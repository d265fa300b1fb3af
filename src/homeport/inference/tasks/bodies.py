"""The bodies of `/v2`, judged at the border. Unknown fields are ignored, as the contract's clients expect."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints, TypeAdapter, ValidationError

from homeport.core.inference.engines.handoff import DEVICE_MASK_PATTERN, POOL_ID_PATTERN
from homeport.core.inference.task import (
    PlacementWish,
    PoolPlacementMode,
    Priority,
    Refusal,
    Task,
    TaskCode,
    TaskRefused,
    WorkloadKind,
    estimate_tokens,
)
from homeport.inference.tasks.wrong_fields import sentences

PROMPT_CHARACTERS_MAX: Final = 1_000_000
PREFIX_CHARACTERS: Final = 512
"""Prompts that begin alike for this long share a replica's cache."""
_UUID_PATTERN: Final = r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_ARTIFACT_PATTERN: Final = r"^[0-9a-f]{64}$"
_PATTERNS: Final = {
    _UUID_PATTERN: "a UUID, such as 6b1f0f6e-30c1-4d4f-9d0c-5a7d1c0de001",
    _ARTIFACT_PATTERN: "the id of an artifact: 64 digits from 0 to 9 and a to f",
    f"^{DEVICE_MASK_PATTERN}$": 'numbers or names of GPUs, as in "0" or "0,1"',
    f"^{POOL_ID_PATTERN}$": "a name of letters, digits, dots, hyphens and underscores, at most 128",
}
Uuid = Annotated[str, StringConstraints(pattern=_UUID_PATTERN)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]
DeviceMask = Annotated[str, StringConstraints(pattern=f"^{DEVICE_MASK_PATTERN}$")]
PoolId = Annotated[str, StringConstraints(pattern=f"^{POOL_ID_PATTERN}$")]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31, strict=True)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63, strict=True)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class PoolPlacementBody(_Body):
    mode: PoolPlacementMode = PoolPlacementMode.AUTO
    pin_pool_id: PoolId | None = None
    prefer_pools: Annotated[tuple[PoolId, ...], Field(max_length=64)] = ()
    avoid_pools: Annotated[tuple[PoolId, ...], Field(max_length=64)] = ()
    require_device_mask: DeviceMask | None = None
    allow_fallback: StrictBool = True


_ANYWHERE_BODY: Final = PoolPlacementBody()
_ANYWHERE: Final = PlacementWish()


class TaskBody(_Body):
    task_id: Uuid
    session_id: Uuid
    workload: WorkloadKind
    model_ref: Name
    engine: Literal["llamacpp", "vllm", "tgi", "triton", "ollama", "openai", "fake", "any"]
    ctx: Int32
    priority: Priority
    max_tokens: Int32
    deadline_ms: Int64
    seed: Int64 | None = None
    determinism: Literal["strict", "best_effort"] = "best_effort"
    sampler_profile_version: Name | None = None
    prompt: Annotated[str, StringConstraints(max_length=PROMPT_CHARACTERS_MAX)] = ""
    inputs: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=PROMPT_CHARACTERS_MAX)], ...], Field(max_length=2048)
    ] = ()
    expected_tokens: Annotated[int, Field(ge=0, lt=2**31, strict=True)] | None = None
    kv_hint: Literal["reuse", "cold"] = "reuse"
    output_mode: str | None = None
    placement: PoolPlacementBody = _ANYWHERE_BODY


class DrainBody(_Body):
    deadline_ms: Annotated[int, Field(ge=0, le=86_400_000, strict=True)]


class ReloadBody(_Body):
    new_model_ref: Name


class PurgeBody(_Body):
    purge_engine: StrictBool = False
    purge_models: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    drain_first: StrictBool = True
    delete_cache_dirs: StrictBool = False
    force: StrictBool = False


class RegisterBody(_Body):
    pool_id: PoolId = "default"
    replica_id: PoolId = "r0"


class ArtifactBody(_Body):
    kind: Literal["plan", "summary", "diff", "trace", "transcript", "logs", "other"]
    content: dict[str, Any]
    tags: Annotated[tuple[Annotated[str, StringConstraints(max_length=200)], ...], Field(max_length=64)] = ()
    parent: Annotated[str, StringConstraints(pattern=_ARTIFACT_PATTERN)] | None = None
    metadata: dict[str, Any] = {}


_TEXTS: Final = {
    WorkloadKind.COMPLETION: "A completion has one text: the prompt, or one entry of inputs.",
    WorkloadKind.EMBEDDING: "An embedding is of the prompt or of the texts in inputs. Send one of the two.",
    WorkloadKind.RERANK: "To rerank, send the query as prompt and the documents as inputs.",
}
_TASK: Final = TypeAdapter(TaskBody)
_ARTIFACT_ID: Final = re.compile(r"[0-9a-f]{64}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def is_artifact_id(text: str) -> bool:
    return _ARTIFACT_ID.fullmatch(text) is not None


def read_task(body: bytes) -> Task:
    found = read(_TASK, body)
    _refuse_texts(found)
    wish = found.placement
    prompt = found.prompt or (found.inputs[0] if found.inputs and found.workload is WorkloadKind.COMPLETION else "")
    tokens, longest = _tokens_of(found)
    return Task(
        task_id=found.task_id.lower(),
        session_id=found.session_id.lower(),
        workload=found.workload,
        model_ref=found.model_ref,
        engine=None if found.engine == "any" else found.engine,
        ctx=found.ctx,
        priority=found.priority,
        max_tokens=found.max_tokens,
        deadline_ms=found.deadline_ms,
        seed=found.seed,
        determinism=found.determinism,
        sampler_profile_version=found.sampler_profile_version,
        prompt=prompt,
        inputs=found.inputs,
        expected_tokens=found.expected_tokens,
        kv_hint=found.kv_hint,
        output_mode=found.output_mode,
        wish=_ANYWHERE if wish is _ANYWHERE_BODY else _wish_of(wish),
        prompt_tokens_estimate=tokens,
        text_tokens_max=longest,
        prefix=prefix_of(prompt) if found.kv_hint == "reuse" else None,
    )


def _refuse_texts(body: TaskBody) -> None:
    """Raises TaskRefused where a text is missing, or would be left out."""
    has_prompt, count = bool(body.prompt), len(body.inputs)
    is_wrong = {
        WorkloadKind.COMPLETION: has_prompt + count > 1,
        WorkloadKind.EMBEDDING: has_prompt == bool(count),
        WorkloadKind.RERANK: not (has_prompt and count),
    }
    if is_wrong[body.workload]:
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, _TEXTS[body.workload], field="inputs"))


def _tokens_of(body: TaskBody) -> tuple[int, int | None]:
    """About how many tokens the engine is given, and those of the longest text where each is computed by itself."""
    tokens = estimate_tokens(body.prompt)
    if not body.inputs:
        return tokens, None if body.workload is WorkloadKind.COMPLETION else tokens
    each = [estimate_tokens(text) for text in body.inputs]
    if body.workload is WorkloadKind.COMPLETION:
        return each[0], None
    return tokens + sum(each), tokens + max(each)


def _wish_of(body: PoolPlacementBody) -> PlacementWish:
    return PlacementWish(
        body.mode,
        body.pin_pool_id,
        body.prefer_pools,
        body.avoid_pools,
        body.require_device_mask,
        body.allow_fallback,
    )


def prefix_of(prompt: str) -> int | None:
    return hash(prompt[:PREFIX_CHARACTERS]) if len(prompt) >= PREFIX_CHARACTERS else None


def read(adapter: TypeAdapter[Any], body: bytes) -> Any:
    """Raises TaskRefused INVALID_PARAMS that names the fields."""
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        field, text = sentences(error, _PATTERNS)
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, text, field=field)) from None
