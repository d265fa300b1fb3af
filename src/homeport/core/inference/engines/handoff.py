"""The handoff record: what the program that started an engine says about one replica, so that tasks can be sent to
it.

It travels as a JSON file on the node, as a message from the node to its site, and from a site to central; `parse`
reads all three and judges every field, since each may come from another version or from a person's editor.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from enum import StrEnum
from typing import Any, Final

from homeport.core.inference.engines.preparing import PreparationStep, PreparingStep, Steps, StepStatus
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

POOL_ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
DEVICE_MASK_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}(?:,[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}){0,15}"
"""Numbers of GPUs, or names that a driver has for them."""
URL_PATTERN: Final = r"https?://[^\s/?#@]{1,255}(/[^\s?#]{0,255})?"
API_KEY_PATTERN: Final = r"[\x21-\x7e]{1,512}"
TEXT_LENGTH_MAX: Final = 512
FLAGS_MAX: Final = 256
SLOTS_MAX: Final = 4_096
CTX_MAX: Final = 16 * 1024 * 1024
REPLICAS_MAX: Final = 1_000
SIZE_MAX: Final = 1 << 53
STEPS_MAX: Final = 8
IDLE_SECONDS_MAX: Final = 7 * 24 * 3600
COMPLETING: Final = frozenset({"completion"})
EVERYTHING: Final = frozenset({"completion", "embedding", "rerank"})
_EMBEDDING: Final = frozenset({"--embedding", "--embeddings"})
_RERANKING: Final = frozenset({"--rerank", "--reranking"})


class EngineName(StrEnum):
    LLAMACPP = "llamacpp"
    VLLM = "vllm"
    TGI = "tgi"
    TRITON = "triton"
    OLLAMA = "ollama"
    OPENAI = "openai"
    FAKE = "fake"


_WORKLOADS: Final[Mapping[EngineName, frozenset[str]]] = {
    EngineName.TGI: COMPLETING,
    EngineName.TRITON: COMPLETING,
    EngineName.OLLAMA: COMPLETING | {"embedding"},
}
"""Of engines whose interfaces have nothing for the others."""


class Loading(StrEnum):
    """Whether an engine that is started and stopped by its use holds its model in memory."""

    LOADED = "loaded"
    LOADING = "loading"
    UNLOADED = "unloaded"


@dataclass(frozen=True, slots=True)
class HandoffModel:
    id: str
    path: str = ""
    size_bytes: int = 0
    """0 where it is not known."""
    kv_token_bytes: int = 0
    """What one token takes of the engine's cache; 0 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """One replica of a pool: an engine that serves one model at an address."""

    engine: EngineName
    url: str
    model: HandoffModel
    engine_version: str = ""
    provisioning_mode: str = "external"
    pool_id: str = "default"
    replica_id: str = "r0"
    flags: tuple[str, ...] = ()
    device_mask: str | None = None
    slots_total: int = 1
    slots_free: int | None = None
    """As the engine said when it started; None for all of them. From then on the registry counts leases itself."""
    ctx_max: int | None = None
    node_id: str = ""
    loading: Loading = Loading.LOADED
    problem: str = ""
    """Why it could not be loaded the last time; empty after a success."""
    problem_at_ms: int = 0
    loaded_min: int = 0
    idle_seconds: int = 0
    """The policy of its pool: how many replicas stay loaded, and after how long one that is not needed is unloaded. 0
    seconds: it is always loaded."""
    preparation: Steps = ()
    """Of an engine that was never started: what is done to bring it here. It has no address yet."""
    api_key: str = field(default="", repr=False)
    """Sent to the engine as its bearer token; never shown, and in no log."""

    @property
    def is_external(self) -> bool:
        """The engine was not started by Homeport, which can neither stop nor unload it."""
        return self.provisioning_mode == "external"

    @property
    def workloads(self) -> frozenset[str]:
        """What it can be asked for, as far as that is known: llama.cpp embeds and reranks only when it was started
        for it; of an engine that was started elsewhere the options are not known."""
        if self.engine in _WORKLOADS:
            return _WORKLOADS[self.engine]
        if self.engine is not EngineName.LLAMACPP or self.is_external:
            return EVERYTHING
        reranks = not _RERANKING.isdisjoint(self.flags)
        embeds = reranks or not _EMBEDDING.isdisjoint(self.flags)
        return COMPLETING | ({"embedding"} if embeds else set()) | ({"rerank"} if reranks else set())

    @property
    def key(self) -> tuple[str, str]:
        return self.pool_id, self.replica_id

    def is_same_engine(self, other: "Handoff") -> bool:
        """Whether a new record describes what is bound already: the adapter and its connections can stay."""
        return replace(self, slots_free=None) == replace(other, slots_free=None)

    def is_same_process(self, other: "Handoff") -> bool:
        """The same, whether it is loaded or not, and whatever its policy is."""
        return self._without_loading() == other._without_loading()

    def _without_loading(self) -> "Handoff":
        return replace(
            self,
            slots_free=None,
            loading=Loading.LOADED,
            problem="",
            problem_at_ms=0,
            loaded_min=0,
            idle_seconds=0,
            preparation=(),
        )


def parse(found: Any) -> Handoff:
    """Raises InvalidInput that names every wrong field. Unknown fields are ignored: a newer version may have them."""
    if not isinstance(found, Mapping):
        raise InvalidInput("A handoff is a JSON object.")
    reading = _Reading(found)
    handoff = Handoff(
        engine=reading.engine(),
        url=reading.pattern("url", URL_PATTERN, "must be an http:// or https:// address of an engine"),
        model=reading.model(),
        engine_version=reading.text("engine_version"),
        provisioning_mode=reading.text("provisioning_mode") or "external",
        pool_id=reading.pattern("pool_id", POOL_ID_PATTERN, "is not a valid pool id", default="default"),
        replica_id=reading.pattern("replica_id", POOL_ID_PATTERN, "is not a valid replica id", default="r0"),
        flags=reading.flags(),
        device_mask=reading.mask(),
        slots_total=reading.count("slots_total", SLOTS_MAX) or 1,
        slots_free=reading.count("slots_free", SLOTS_MAX),
        ctx_max=reading.count("ctx_max", CTX_MAX) or None,
        node_id=reading.text("node_id"),
        loading=reading.loading(),
        problem=reading.text("problem"),
        problem_at_ms=reading.count("problem_at_ms", 1 << 53) or 0,
        loaded_min=reading.count("loaded_min", REPLICAS_MAX) or 0,
        idle_seconds=reading.count("idle_seconds", IDLE_SECONDS_MAX) or 0,
        preparation=reading.preparation(),
        api_key=reading.pattern("api_key", API_KEY_PATTERN, "must be printable ASCII without spaces", default=""),
    )
    if reading.problems:
        raise InvalidInput(problems=reading.problems)
    return handoff


def to_data(handoff: Handoff) -> dict[str, Any]:
    """The opposite of `parse`."""
    return {
        **asdict(handoff),
        "engine": handoff.engine.value,
        "flags": list(handoff.flags),
        "loading": handoff.loading.value,
        "preparation": [
            {**asdict(step), "kind": step.kind.value, "status": step.status.value} for step in handoff.preparation
        ],
    }


class _Reading:
    """Collects what is wrong, so that a person sees everything at once."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found
        self.problems: list[Problem] = []

    def text(self, name: str, value: Any = None) -> str:
        value = self._found.get(name) if value is None else value
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > TEXT_LENGTH_MAX or not value.isprintable():
            self.problems.append(Problem(name, f"must be printable text of at most {TEXT_LENGTH_MAX} characters"))
            return ""
        return value

    def pattern(self, name: str, pattern: str, message: str, *, default: str | None = None) -> str:
        value = self.text(name)
        if not value and default is not None:
            return default
        if re.fullmatch(pattern, value, re.ASCII) is None:
            self.problems.append(Problem(name, message))
        return value

    def mask(self) -> str | None:
        value = self.text("device_mask").replace(" ", "")
        if value and re.fullmatch(DEVICE_MASK_PATTERN, value, re.ASCII) is None:
            self.problems.append(Problem("device_mask", 'must be numbers or names of GPUs, as in "0" or "0,1"'))
        return value or None

    def engine(self) -> EngineName:
        value = self.text("engine")
        if value not in {each.value for each in EngineName}:
            known = ", ".join(each.value for each in EngineName if each is not EngineName.FAKE)
            self.problems.append(Problem("engine", f"must be one of {known}"))
            return EngineName.OPENAI
        return EngineName(value)

    def loading(self) -> Loading:
        value = self.text("loading") or Loading.LOADED.value
        if value not in {each.value for each in Loading}:
            self.problems.append(Problem("loading", "must be loaded, loading or unloaded"))
            return Loading.LOADED
        return Loading(value)

    def model(self) -> HandoffModel:
        value = self._found.get("model")
        if not isinstance(value, Mapping) or not value.get("id"):
            self.problems.append(Problem("model", "must be an object with an id"))
            return HandoffModel("")
        return HandoffModel(
            self.text("model.id", value["id"]),
            self.text("model.path", value.get("path") or ""),
            self.count("model.size_bytes", SIZE_MAX, value.get("size_bytes")) or 0,
            self.count("model.kv_token_bytes", SIZE_MAX, value.get("kv_token_bytes")) or 0,
        )

    def flags(self) -> tuple[str, ...]:
        value = self._found.get("flags") or ()
        if not isinstance(value, list | tuple) or len(value) > FLAGS_MAX:
            self.problems.append(Problem("flags", f"must be a list of at most {FLAGS_MAX} texts"))
            return ()
        return tuple(self.text("flags", each) for each in value)

    def preparation(self) -> Steps:
        value = self._found.get("preparation")
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or len(value) > STEPS_MAX:
            self.problems.append(Problem("preparation", f"must be a list of at most {STEPS_MAX} steps"))
            return ()
        return tuple(step for each in value if (step := self._step(each)) is not None)

    def _step(self, value: Any) -> PreparationStep | None:
        """None for one of a kind that is not known here: a newer version may have more."""
        if not isinstance(value, Mapping) or not value.get("id"):
            self.problems.append(Problem("preparation", "must have steps with an id"))
            return None
        kind, status = value.get("kind"), value.get("status") or StepStatus.PENDING.value
        if str(kind) not in set(PreparingStep) or str(status) not in set(StepStatus):
            return None
        return PreparationStep(
            id=self.text("preparation.id", value["id"]),
            kind=PreparingStep(str(kind)),
            description=self.text("preparation.description", value.get("description") or ""),
            status=StepStatus(str(status)),
            bytes_total=self.count("preparation.bytes_total", SIZE_MAX, value.get("bytes_total")) or 0,
            bytes_done=self.count("preparation.bytes_done", SIZE_MAX, value.get("bytes_done")) or 0,
            estimated_ms=self.count("preparation.estimated_ms", SIZE_MAX, value.get("estimated_ms")) or 0,
        )

    def count(self, name: str, most: int, value: Any = None) -> int | None:
        value = self._found.get(name) if value is None else value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            self.problems.append(Problem(name, f"must be a whole number from 0 to {most}"))
            return None
        return value
