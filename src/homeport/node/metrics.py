"""What an operator counts on a node. Levels are read from the journal when they are scraped, so they cannot drift."""

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from homeport.core.node.entry import Outcome
from homeport.node.journal import Journal
from homeport.node.status import Status
from homeport.vocabulary import OrderKind

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class NodeMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.orders = Counter(
            "homeport_node_orders", "Orders received, by what became of them.", ["verdict"], registry=registry
        )
        self.failures = Counter("homeport_node_failures", "Orders that failed, by code.", ["code"], registry=registry)
        self.durations = Histogram(
            "homeport_node_order_seconds",
            "From accepting an order to its result.",
            ["kind"],
            buckets=SECONDS,
            registry=registry,
        )
        self.restores = Counter(
            "homeport_node_restores", "Components that were found wrong and started again.", registry=registry
        )
        self.restores_failed = Counter(
            "homeport_node_restores_failed", "Attempts to start a component again that failed.", registry=registry
        )
        self.connections = Counter(
            "homeport_node_connections", "Streams that the site has welcomed.", registry=registry
        )
        self.progress_dropped = Counter(
            "homeport_node_progress_dropped", "Progress news dropped while the link was slow.", registry=registry
        )
        self.connected = Gauge("homeport_node_connected", "1 while the site hears the node.", registry=registry)

    def watch(self, journal: Journal, status: Status) -> "Levels":
        levels = Levels(journal, status)
        self.registry.register(levels)
        return levels


class Levels(Collector):
    def __init__(self, journal: Journal, status: Status) -> None:
        self._journal = journal
        self._status = status

    def collect(self) -> Iterator[Metric]:
        states = Tally(
            "removed"
            if entry.order.kind is OrderKind.REMOVE and entry.outcome is Outcome.SUCCEEDED
            else entry.outcome
            for entry in self._journal.entries.values()
        )
        deployments = GaugeMetricFamily(
            "homeport_node_deployments",
            "Deployments in the journal, by how their newest order stands.",
            labels=["state"],
        )
        for state in (*Outcome, "removed"):
            deployments.add_metric([str(state)], states[state])
        yield deployments
        yield GaugeMetricFamily(
            "homeport_node_outbox", "News that the site has not acknowledged.", value=len(self._journal.outbox)
        )
        yield GaugeMetricFamily(
            "homeport_node_engine_up", "1 while the engine answers.", value=float(self._status.engine_problem is None)
        )
