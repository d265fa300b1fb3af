"""The contract's series, with its names, labels and buckets. Label values from outside are bounded: beyond the budget
of a label they are counted as `other`."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.registry import Collector

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.inference.models.lifecycle import ModelLifecycle
from homeport.core.inference.placement import Decision
from homeport.core.inference.queue import PoolQueue
from homeport.core.inference.task import Priority, TaskCode

if TYPE_CHECKING:
    from homeport.inference.pools.replica import Replica
    from homeport.inference.tasks.scheduler import Ticket

FIRST_TOKEN_MS: Final = (50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000)
DECODE_MS: Final = (250, 500, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000)
_REPLICA: Final = ("engine", "engine_version", "pool_id", "replica_id")
_POOL: Final = ("engine", "engine_version", "pool_id", "priority")
BUDGETS: Final = {"device": 64, "pool_id": 256, "engine_version": 64, "replica_id": 1024, "model_id": 1024}
_TRUTH: Final = {False: "false", True: "true"}


class _Bounded:
    """The values of one label that have a series of their own."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= self._most:
                return "other"
            self._known.add(value)
        return value


class InferenceMetrics(Collector):
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._bounds = {name: _Bounded(most) for name, most in BUDGETS.items()}
        self.model_states: Callable[[], Mapping[str, ModelLifecycle]] | None = None
        """Asked at each scrape."""
        self.gpus: Callable[[], Iterable[tuple[Replica, GpusOfNode]]] | None = None
        """The replicas with the GPUs they use, asked at each scrape."""
        self._children: dict[tuple[str, ...], Counter] = {}
        self._gauges: dict[tuple[str, ...], Gauge] = {}
        self._histograms: dict[tuple[str, ...], Histogram] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self._enqueued = counter("tasks_enqueued", "Tasks that were accepted.", *_REPLICA, "priority")
        self._started = counter("tasks_started", "Tasks that got a slot.", *_REPLICA, "priority")
        self._canceled = counter("tasks_canceled", "Tasks that were cancelled.", *_REPLICA, "reason")
        self._rejected = counter("tasks_rejected", "Tasks that were refused.", "engine", "reason")
        self._backpressure = counter(
            "admission_backpressure_events", "How often a queue was full.", "engine", "policy"
        )
        self._tokens_in = counter("tokens_in", "Tokens of prompts.", *_REPLICA)
        self._tokens_out = counter("tokens_out", "Tokens that were generated.", *_REPLICA)
        self.catalog_verifications = counter(
            "catalog_verifications", "Checks of models against their digest.", "result", "reason", "engine"
        )
        self._placements = counter("placement_decisions", "Decisions of placement.", "outcome", "pinned", "fallback")
        self._depth = gauge("queue_depth", "Tasks that wait.", *_POOL)
        self.kv_cache = gauge("kv_cache_usage_ratio", "How full the engine's cache is.", *_REPLICA)
        self.gpu = gauge("gpu_utilization", "How busy the device is, from 0 to 1.", *_REPLICA, "device")
        self.vram = gauge("vram_used_bytes", "Memory of the device in use.", *_REPLICA, "device")
        self.model_state = gauge("model_state", "1 for the state that a model is in.", "model_id", "state")
        self._considered = gauge("placement_candidates_considered", "Replicas that the last decision looked at.")
        self._first = Histogram(
            "latency_first_token_ms", "Until the first token.", _POOL, buckets=FIRST_TOKEN_MS, registry=registry
        )
        self._decode = Histogram(
            "latency_decode_ms", "From the first token to the last.", _POOL, buckets=DECODE_MS, registry=registry
        )
        self._leases = gauge("active_leases", "Slots in use.", "pool_id")
        self._ready = gauge("pool_ready", "1 for a pool that takes tasks.", "pool_id")
        self._drains = counter("drain_events", "Drains of pools.", "pool_id", "reason")
        self.dropped = counter("sse_backpressure_drops", "Metrics frames that a slow client did not get.")
        self.reloads = counter("reload_success", "Reloads that succeeded.", "pool_id")
        self.failed_reloads = counter("reload_failure", "Reloads that failed and were undone.", "pool_id")

    def collect(self) -> Iterable[Metric]:
        self.model_state.clear()
        for model_id, state in (self.model_states() if self.model_states is not None else {}).items():
            for each in ModelLifecycle:
                self.model_state.labels(self._bounds["model_id"](model_id), each.value).set(each is state)
        self._collect_gpus()
        return self.registry.collect()

    def _collect_gpus(self) -> None:
        """Without a GPU there is no sample: a zero would be one that is idle."""
        self.gpu.clear()
        self.vram.clear()
        for replica, devices in self.gpus() if self.gpus is not None else ():
            for device, use in devices.items():
                labels = (*self._of(replica), self._bounds["device"](device))
                if use.utilization is not None:
                    self.gpu.labels(*labels).set(use.utilization)
                if use.memory_used_bytes is not None:
                    self.vram.labels(*labels).set(use.memory_used_bytes)

    def verified(self, result: str, reason: str) -> None:
        self._count(self.catalog_verifications, result, reason, "")

    def cache_used(self, replica: "Replica") -> None:
        if replica.props.kv_usage_ratio is not None:
            self.kv_cache.labels(*self._of(replica)).set(replica.props.kv_usage_ratio)

    # --- events -------------------------------------------------------------------------------------------------

    def enqueued(self, ticket: "Ticket") -> None:
        chosen = ticket.decision.chosen if ticket.decision is not None else None
        if chosen is None:
            return
        labels = (chosen.engine, chosen.engine_version, chosen.pool_id, chosen.replica_id)
        self._count(self._enqueued, *labels, ticket.task.priority.value)

    def started(self, ticket: "Ticket") -> None:
        assert ticket.replica is not None
        self._count(self._started, *self._of(ticket.replica), ticket.task.priority.value)

    def canceled(self, replica: "Replica | None", reason: str) -> None:
        labels = ("", "", "", "") if replica is None else self._of(replica)
        self._count(self._canceled, *labels, reason)

    def rejected(self, engine: str, code: TaskCode) -> None:
        self._count(self._rejected, engine, code.value)

    def backpressure(self, engine: str, policy: str) -> None:
        self._count(self._backpressure, engine, policy)

    def placed(self, decision: Decision) -> None:
        outcome = "no_capacity" if decision.chosen is None else "assigned"
        pinned, fallback = _TRUTH[decision.pinned], _TRUTH[decision.fallback]
        self._count(self._placements, outcome, pinned, fallback)
        self._considered.set(decision.considered)

    def depth(self, pool_id: str, queue: "PoolQueue[Ticket]", replica: "Replica | None") -> None:
        """`replica` is any of the pool's: its engine and version are those of the pool."""
        engine, version, name, _ = ("", "", pool_id, "") if replica is None else self._of(replica)
        for priority in Priority:
            labels = (engine, version, name, priority.value)
            gauge = self._gauges.get(labels)
            if gauge is None:
                gauge = self._gauges[labels] = self._depth.labels(*labels)
            gauge.set(queue.depth(priority))

    def pool(self, pool_id: str, *, is_ready: bool, leases: Callable[[], int]) -> None:
        """`leases` is asked at each scrape."""
        name = self._bounds["pool_id"](pool_id)
        self._ready.labels(name).set(is_ready)
        self._leases.labels(name).set_function(leases)

    def drained(self, pool_id: str, reason: str) -> None:
        self._count(self._drains, self._bounds["pool_id"](pool_id), reason)

    def first_token(self, replica: "Replica", priority: Priority, milliseconds: float) -> None:
        engine, version, pool_id, _ = self._of(replica)
        self._observe(self._first, engine, version, pool_id, priority.value, value=milliseconds)

    def finished(
        self, replica: "Replica", priority: Priority, *, tokens_in: int, tokens_out: int, decode_ms: float
    ) -> None:
        labels = self._of(replica)
        self._count(self._tokens_in, *labels, by=tokens_in)
        self._count(self._tokens_out, *labels, by=tokens_out)
        self._observe(self._decode, *labels[:3], priority.value, value=decode_ms)

    def _of(self, replica: "Replica") -> tuple[str, str, str, str]:
        handoff, bounds = replica.handoff, self._bounds
        return (
            handoff.engine.value,
            bounds["engine_version"](replica.engine_version),
            bounds["pool_id"](handoff.pool_id),
            bounds["replica_id"](handoff.replica_id),
        )

    def _count(self, counter: Counter, *labels: str, by: float = 1) -> None:
        # Looking a child up by its labels costs more than counting.
        key = (counter._name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = counter.labels(*labels)
        child.inc(by)

    def _observe(self, histogram: Histogram, *labels: str, value: float) -> None:
        key = (histogram._name, *labels)
        child = self._histograms.get(key)
        if child is None:
            child = self._histograms[key] = histogram.labels(*labels)
        child.observe(value)
