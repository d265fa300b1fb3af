"""One replica: its engine, its leases, and what was measured of it."""

from collections import OrderedDict
from dataclasses import field
from typing import Final

from homeport.core.inference.breaker import CLOSED, Breaker
from homeport.core.inference.engines.gpus import needed_bytes
from homeport.core.inference.engines.handoff import Handoff, Loading
from homeport.core.inference.placement import ReplicaCandidate
from homeport.lazy_dataclass import dataclass
from homeport.ports import OpenStream
from homeport.ports.engine import InferenceEngine, Props

PREFIXES_MAX: Final = 256
"""Prompts whose cache a replica probably still has."""
_WEIGHT: Final = 0.2
"""Of the newest measurement in a moving average."""
LOAD_RETRY_SECONDS: Final = 30.0
"""After it could not be loaded, tasks for it are refused for so long instead of waiting."""
LOAD_MS_GUESS: Final = 3_000.0
"""For placement alone, before a load was measured."""
TOKENS_PER_SECOND_MAX: Final = 10_000.0
"""No engine decodes one answer faster: what looks like it came in one piece."""
CacheOwner = tuple[str, str]
"""A caller and its session, or its task where that has no session."""
Labels = tuple[str, str, str, str]
"""Engine, engine version, pool and replica, as metrics and log lines name it."""


@dataclass(eq=False, slots=True)
class Replica:
    handoff: Handoff
    engine: InferenceEngine
    site: str = ""
    opens: OpenStream | None = None
    live: bool = False
    ready: bool = False
    draining: bool = False
    last_error: str = "not checked yet"
    heartbeat_at: float | None = None
    props_at: float = 0.0
    leases: int = 0
    breaker: Breaker = CLOSED
    props: Props = field(default_factory=Props)
    tokens_per_second: float | None = None
    first_token_ms: float | None = None
    task_seconds: float | None = None
    prefixes: OrderedDict[int, None] = field(default_factory=OrderedDict)
    caches: OrderedDict[CacheOwner, int | None] = field(default_factory=OrderedDict)
    """What each of the last tasks has left in the engine's cache, in bytes; at most one for each slot, since a slot
    keeps what it computed last. None where the engine does not say."""
    models: frozenset[str] = frozenset()
    """Under which names it is asked for."""
    in_memory: frozenset[str] | None = None
    """Which of its models it has loaded, as far as that is known; None where it does not load them one by one."""
    labels: Labels = ("", "", "", "")
    is_bound: bool = True
    was_prepared: bool = False
    """It was bound in place of one that was being prepared: tasks wait for its first health check."""
    is_checked: bool = False
    """Since it was bound or loaded."""
    is_doubted: bool = False
    """Its connection broke off: it gets no task until it has answered a health check again."""
    loading_since: float | None = None
    load_ms: float | None = None
    """How long it took the last time, from the request to the first healthy answer."""
    failed_at: float | None = None
    """When it was heard that it could not be loaded."""
    used_at: float = 0.0
    vram_free_bytes: int | None = None
    """Of the GPUs that it uses, as last measured; None where nothing measures them."""

    def __post_init__(self) -> None:
        self.learn(self.props)

    @property
    def key(self) -> tuple[str, str]:
        return self.handoff.key

    @property
    def slots_total(self) -> int:
        return self.handoff.slots_total

    @property
    def slots_free(self) -> int:
        return max(0, self.handoff.slots_total - self.leases)

    def learn(self, props: Props) -> None:
        self.props = props
        model = self.handoff.model
        self.models = frozenset({model.id, *props.models} - {""})
        self.in_memory = None if props.loaded is None else frozenset(props.loaded)
        self.labels = (self.handoff.engine.value, self.engine_version, *self.handoff.key)

    def own_name_of(self, model: str) -> str:
        """What the engine calls it. One of several models is never asked for another than was meant: Ollama says
        `llama3:latest` where `llama3` is enough, and others are left to find what they do not list."""
        names = self.props.models
        if not names or model in names:
            return model
        if len(names) == 1:
            return names[0]
        latest = f"{model}:latest"
        return latest if latest in names else model

    def has_loaded(self, model: str) -> bool:
        return self.in_memory is None or self.own_name_of(model) in self.in_memory

    def loads(self, model: str) -> None:
        """It was asked for it. Whether another one had to make room is known when the engine is asked again."""
        if not self.has_loaded(model):
            self.in_memory = frozenset({self.own_name_of(model)})

    def is_coming(self, now: float) -> bool:
        """It is loaded on request, or is on its way: tasks may wait for it."""
        is_on_the_way = bool(self.handoff.idle_seconds or self.handoff.preparation or self.was_prepared)
        if not is_on_the_way or self.draining:
            return False
        if self.handoff.preparation:
            return not self.handoff.problem
        if self.handoff.loading is Loading.LOADED:
            return not self.is_checked
        return self.failed_at is None or now - self.failed_at >= LOAD_RETRY_SECONDS

    def change(self, handoff: Handoff, now: float) -> bool:
        """Takes in that the same engine was loaded or unloaded. Returns whether loading it has just failed."""
        before, self.handoff = self.handoff, handoff
        self.labels = (handoff.engine.value, self.engine_version, *handoff.key)
        if handoff.loading is not before.loading:
            self.live = self.ready = self.is_checked = False
            self.caches.clear()
            if handoff.loading is Loading.LOADING:
                self.loading_since = now
            elif handoff.loading is Loading.UNLOADED:
                self.loading_since = None
            self.last_error = unloaded(handoff)
        if not handoff.problem:
            self.failed_at = None
        elif handoff.problem_at_ms != before.problem_at_ms:
            self.failed_at, self.last_error = now, handoff.problem
            return True
        return False

    def takes_tasks(self, now: float) -> bool:
        return self._may_take(now) and not self.is_doubted

    def is_awaited(self, now: float) -> bool:
        """It gets no task just now, and probably will in a moment: tasks may wait for it."""
        return self.is_doubted and self._may_take(now)

    def _may_take(self, now: float) -> bool:
        return self.live and self.ready and not self.draining and self.breaker.lets_through(now)

    def candidate(
        self, now: float, *, model: str, queued: int, prefix: int | None, affine: tuple[str, str] | None
    ) -> ReplicaCandidate:
        handoff = self.handoff
        return ReplicaCandidate(
            pool_id=handoff.pool_id,
            replica_id=handoff.replica_id,
            engine=handoff.engine.value,
            engine_version=self.engine_version,
            models=self.models,
            site=self.site,
            slots_total=self.slots_total,
            slots_free=self.slots_free,
            ready=self.takes_tasks(now),
            ctx_max=handoff.ctx_max or self.props.ctx_max,
            vram_free_bytes=self.vram_free_bytes,
            vram_needed_bytes=needed_bytes(handoff),
            device_mask=handoff.device_mask,
            workloads=handoff.workloads,
            tokens_per_second=self.tokens_per_second,
            first_token_ms=self.first_token_ms,
            load_ms=0.0 if self.has_loaded(model) else LOAD_MS_GUESS,
            queued=queued,
            has_prefix=prefix is not None and prefix in self.prefixes,
            is_affine=affine == handoff.key,
        )

    @property
    def engine_version(self) -> str:
        return self.handoff.engine_version or self.props.engine_version

    def cached(self, prefix: int | None) -> None:
        if prefix is None:
            return
        self.prefixes[prefix] = None
        self.prefixes.move_to_end(prefix)
        if len(self.prefixes) > PREFIXES_MAX:
            self.prefixes.popitem(last=False)

    def loaded(self, now: float) -> None:
        """It has answered for the first time since then."""
        if not self.is_checked and self.loading_since is not None:
            self.load_ms, self.loading_since = 1000 * (now - self.loading_since), None
        self.is_checked = True

    def occupied(self, owner: CacheOwner) -> None:
        """A slot computes for it: what was not used for longest is overwritten. How much it leaves is not known
        before its end."""
        self.caches[owner] = None
        self.caches.move_to_end(owner)
        while len(self.caches) > self.slots_total:
            self.caches.popitem(last=False)

    def kept(self, owner: CacheOwner, tokens: int | None) -> None:
        """So many tokens of it are in the cache now."""
        if owner in self.caches:
            size = self.handoff.model.kv_token_bytes
            self.caches[owner] = tokens * size if tokens is not None and size else None

    def measured(self, *, first_token_ms: float, seconds: float, tokens: int) -> None:
        self.first_token_ms = _average(self.first_token_ms, first_token_ms)
        self.task_seconds = _average(self.task_seconds, seconds)
        rate = _tokens_per_second(tokens, seconds=seconds, decoding=seconds - first_token_ms / 1000)
        if rate is not None:
            self.tokens_per_second = _average(self.tokens_per_second, rate)


def unloaded(handoff: Handoff) -> str:
    """Why it takes no tasks, as far as its record says it."""
    if handoff.preparation:
        return handoff.problem or "it is being prepared"
    return "" if handoff.loading is Loading.LOADED else f"the model is {handoff.loading.value}"


def _tokens_per_second(tokens: int, *, seconds: float, decoding: float) -> float | None:
    """An engine that is not asked to stream sends all tokens together: then only the whole time says something."""
    if tokens <= 1 or seconds <= 0:
        return None
    if decoding < tokens / TOKENS_PER_SECOND_MAX:
        return tokens / seconds
    return (tokens - 1) / decoding


def _average(before: float | None, new: float) -> float:
    return new if before is None else before + _WEIGHT * (new - before)
