"""The contract's series, with its names, labels and buckets. Label values from outside are bounded: beyond the budget
of a label they are counted as `other`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.registry import Collector

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.inference.models.lifecycle import ModelLifecycle
from homeport.core.inference.placement import PoolDecision
from homeport.core.inference.queue import PoolQueue
from homeport.core.inference.task import Priority, TaskCode

if TYPE_CHECKING:
    from homeport.inference.pools.replica import Labels, Replica
    from homeport.inference.tasks.scheduler import Ticket

FIRST_TOKEN_MS: Final = (50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000)
DECODE_MS: Final = (250, 500, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000)
CHANGE_MS: Final = (100, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000)
"""Of a change of a whole pool; a reload should take less than ten seconds."""
_REPLICA: Final = ("engine", "engine_version", "pool_id", "replica_id")
_POOL: Final = ("engine", "engine_version", "pool_id", "priority")
BUDGETS: Final = {"device": 64, "pool_id": 256, "engine_version": 64, "replica_id": 1024, "model_id": 1024}
SERIES_MAX: Final = 4_096
"""Replicas and priorities whose series are remembered; beyond them they are looked up again."""
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


class _Series:
    """What is counted of one replica and priority. Looking series up by their labels costs more than counting."""

    __slots__ = ("decode", "enqueued", "first_token", "started", "tokens_in", "tokens_out")

    def __init__(self, metrics: "InferenceMetrics", labels: "Labels", priority: Priority) -> None:
        engine, version, pool_id, replica_id = metrics.bounded(labels)
        self.enqueued = metrics.enqueued_total.labels(engine, version, pool_id, replica_id, priority.value)
        self.started = metrics.started_total.labels(engine, version, pool_id, replica_id, priority.value)
        self.tokens_in = metrics.tokens_in_total.labels(engine, version, pool_id, replica_id)
        self.tokens_out = metrics.tokens_out_total.labels(engine, version, pool_id, replica_id)
        self.first_token = metrics.first_token_ms.labels(engine, version, pool_id, priority.value)
        self.decode = metrics.decode_ms.labels(engine, version, pool_id, priority.value)


class InferenceMetrics(Collector):
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._bounds = {name: _Bounded(most) for name, most in BUDGETS.items()}
        self.model_states: Callable[[], Mapping[str, ModelLifecycle]] | None = None
        """Asked at each scrape."""
        self.gpus: Callable[[], Iterable[tuple[Replica, GpusOfNode]]] | None = None
        """The replicas with the GPUs they use, asked at each scrape."""
        self.queues: Callable[[], Iterable[tuple[str, PoolQueue[Ticket] | None, Replica | None]]] | None = None
        """The queues by pool, with any of the pool's replicas: its engine and version are those of the pool. Asked at
        each scrape."""
        self.pools: Callable[[], Iterable[tuple[str, bool, Sequence[Replica]]]] | None = None
        """The pools that there are, whether each accepts tasks, and its replicas. Asked at each scrape."""
        self._children: dict[tuple[str, ...], Counter] = {}
        self._series: dict[tuple[Labels, Priority], _Series] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.enqueued_total = counter("tasks_enqueued", "Tasks that were accepted.", *_REPLICA, "priority")
        self.started_total = counter("tasks_started", "Tasks that got a slot.", *_REPLICA, "priority")
        self._canceled = counter("tasks_canceled", "Tasks that were cancelled.", *_REPLICA, "reason")
        self._rejected = counter("tasks_rejected", "Tasks that were refused.", "engine", "reason")
        self._backpressure = counter(
            "admission_backpressure_events", "How often a queue was full.", "engine", "policy"
        )
        self.tokens_in_total = counter("tokens_in", "Tokens of prompts.", *_REPLICA)
        self.tokens_out_total = counter("tokens_out", "Tokens that were generated.", *_REPLICA)
        self.catalog_verifications = counter(
            "catalog_verifications", "Checks of models against their digest.", "result", "reason", "engine"
        )
        self._placements = counter("placement_decisions", "Decisions of placement.", "outcome", "pinned", "fallback")
        self._depth = gauge("queue_depth", "Tasks that wait.", *_POOL)
        self.kv_cache = gauge("kv_cache_usage_ratio", "How full the engine's cache is.", *_REPLICA)
        self.gpu = gauge("gpu_utilization", "How busy the device is, from 0 to 1.", *_REPLICA, "device")
        self.vram = gauge("vram_used_bytes", "Memory of the device in use.", *_REPLICA, "device")
        self.model_state = gauge("model_state", "1 for the state that a model is in.", "model_id", "state")
        self._considered = gauge("placement_candidates_considered", "Replicas considered by the last placement.")
        self.first_token_ms = Histogram(
            "latency_first_token_ms", "Until the first token.", _POOL, buckets=FIRST_TOKEN_MS, registry=registry
        )
        self.decode_ms = Histogram(
            "latency_decode_ms", "From the first token to the last.", _POOL, buckets=DECODE_MS, registry=registry
        )
        self._leases = gauge("active_leases", "Slots in use.", "pool_id")
        self._ready = gauge("pool_ready", "1 for a pool that accepts tasks.", "pool_id")
        self._drains = counter("drain_events", "Drains of pools.", "pool_id", "reason")
        self.dropped = counter("sse_backpressure_drops", "Metrics frames that a slow client did not get.")
        self.reloads = counter("reload_success", "Reloads that succeeded.", "pool_id")
        self.reload_ms = Histogram(
            "reload_duration_ms", "From the request to its end.", ("pool_id",), buckets=CHANGE_MS, registry=registry
        )
        self.drain_ms = Histogram(
            "drain_duration_ms", "Until the pool was idle.", ("pool_id",), buckets=CHANGE_MS, registry=registry
        )
        self.failed_reloads = counter("reload_failure", "Reloads that failed and were undone.", "pool_id")

    def collect(self) -> Iterable[Metric]:
        self.model_state.clear()
        for model_id, state in (self.model_states() if self.model_states is not None else {}).items():
            for each in ModelLifecycle:
                self.model_state.labels(self._bounds["model_id"](model_id), each.value).set(each is state)
        self._collect_gpus()
        self._collect_queues()
        self._collect_pools()
        return self.registry.collect()

    def _collect_gpus(self) -> None:
        """Without a GPU there is no sample: a zero would be one that is idle."""
        self.gpu.clear()
        self.vram.clear()
        for replica, devices in self.gpus() if self.gpus is not None else ():
            for device, use in devices.items():
                labels = (*self.bounded(replica.labels), self._bounds["device"](device))
                if use.utilization is not None:
                    self.gpu.labels(*labels).set(use.utilization)
                if use.memory_used_bytes is not None:
                    self.vram.labels(*labels).set(use.memory_used_bytes)

    def _collect_queues(self) -> None:
        self._depth.clear()
        for pool_id, queue, replica in self.queues() if self.queues is not None else ():
            engine, version, name, _ = ("", "", pool_id, "") if replica is None else self.bounded(replica.labels)
            for priority in Priority:
                depth = 0 if queue is None else queue.depth(priority)
                self._depth.labels(engine, version, name, priority.value).set(depth)

    def _collect_pools(self) -> None:
        """A pool or replica that is gone has no sample: it would look like one that is not ready."""
        for gauge in (self._ready, self._leases, self.kv_cache):
            gauge.clear()
        for pool_id, is_ready, replicas in self.pools() if self.pools is not None else ():
            name = self._bounds["pool_id"](pool_id)
            self._ready.labels(name).set(is_ready)
            self._leases.labels(name).set(sum(each.leases for each in replicas))
            for each in replicas:
                if each.props.kv_usage_ratio is not None:
                    self.kv_cache.labels(*self.bounded(each.labels)).set(each.props.kv_usage_ratio)

    def verified(self, result: str, reason: str) -> None:
        self._count(self.catalog_verifications, result, reason, "")

    # --- events -------------------------------------------------------------------------------------------------

    def enqueued(self, ticket: "Ticket") -> None:
        if (labels := _planned(ticket)) is not None:
            self._of(labels, ticket.task.priority).enqueued.inc()

    def started(self, ticket: "Ticket") -> None:
        assert ticket.replica is not None
        self._of(ticket.replica.labels, ticket.task.priority).started.inc()

    def canceled(self, ticket: "Ticket", reason: str) -> None:
        """Of a task that still waited, as it was counted when it was admitted."""
        labels = ticket.where or _planned(ticket)
        self._count(self._canceled, *(("", "", "", "") if labels is None else self.bounded(labels)), reason)

    def rejected(self, engine: str, code: TaskCode) -> None:
        self._count(self._rejected, engine, code.value)

    def backpressure(self, engine: str, policy: str) -> None:
        self._count(self._backpressure, engine, policy)

    def placed(self, decision: PoolDecision) -> None:
        outcome = "no_capacity" if decision.chosen is None else "assigned"
        pinned, fallback = _TRUTH[decision.pinned], _TRUTH[decision.fallback]
        self._count(self._placements, outcome, pinned, fallback)
        self._considered.set(decision.considered)

    def drained(self, pool_id: str, reason: str) -> None:
        self._count(self._drains, self._bounds["pool_id"](pool_id), reason)

    def first_token(self, replica: "Replica", priority: Priority, milliseconds: float) -> None:
        self._of(replica.labels, priority).first_token.observe(milliseconds)

    def finished(self, replica: "Replica", priority: Priority, *, decode_ms: float) -> None:
        self._of(replica.labels, priority).decode.observe(decode_ms)

    def used(self, ticket: "Ticket", *, tokens_in: int, tokens_out: int) -> None:
        """By a task that an engine was asked to run, however it ended."""
        if ticket.where is not None:
            series = self._of(ticket.where, ticket.task.priority)
            series.tokens_in.inc(tokens_in)
            series.tokens_out.inc(tokens_out)

    def _of(self, labels: "Labels", priority: Priority) -> _Series:
        found = self._series.get((labels, priority))
        if found is None:
            if len(self._series) >= SERIES_MAX:
                self._series.clear()
            found = self._series[labels, priority] = _Series(self, labels, priority)
        return found

    def bounded(self, labels: "Labels") -> "Labels":
        engine, version, pool_id, replica_id = labels
        bounds = self._bounds
        return (
            engine,
            bounds["engine_version"](version),
            bounds["pool_id"](pool_id),
            bounds["replica_id"](replica_id),
        )

    def _count(self, counter: Counter, *labels: str, by: float = 1) -> None:
        # Looking a child up by its labels costs more than counting.
        key = (counter._name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = counter.labels(*labels)
        child.inc(by)


def _planned(ticket: "Ticket") -> "Labels | None":
    """Of the replica that placement has chosen for it."""
    chosen = None if ticket.decision is None else ticket.decision.chosen
    return None if chosen is None else (chosen.engine, chosen.engine_version, chosen.pool_id, chosen.replica_id)
