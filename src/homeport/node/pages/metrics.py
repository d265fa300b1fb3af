"""The node's metrics. Gauges are read from the journal when scraped, so they cannot drift."""

from collections import Counter as Tally
from collections.abc import Iterator

from homeport.adapters.prometheus_text import Counter, Family, Histogram, MetricsRegistry, Value, gauge
from homeport.core.node.entry import OrderOutcome
from homeport.node.journal.journal import Journal
from homeport.node.pages.status import NodeStatus
from homeport.vocabulary import OrderKind

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class NodeMetrics:
    def __init__(self, registry: MetricsRegistry) -> None:
        self.registry = registry
        self.orders = Counter("homeport_node_orders", "Orders received, by outcome.", "verdict")
        self.failures = Counter("homeport_node_failures", "Orders that failed, by code.", "code")
        self.durations = Histogram(
            "homeport_node_order_seconds", "From accepting an order to its result.", "kind", buckets=SECONDS
        )
        self.restores = Counter("homeport_node_restores", "Components that had drifted and were restarted.")
        self.restores_failed = Counter("homeport_node_restores_failed", "Failed attempts to restart a component.")
        self.unhealthy = Counter(
            "homeport_node_health_changes",
            "Deployments that turned unhealthy after installation, or healthy again.",
            "health",
        )
        self.connections = Counter("homeport_node_connections", "Streams accepted by the site.")
        self.progress_dropped = Counter(
            "homeport_node_progress_dropped", "Progress news dropped while the link was slow."
        )
        self.refused = Counter("homeport_messages_refused", "Messages of the site that could not be read.", "code")
        self.refused_by_site = Counter(
            "homeport_node_messages_refused_by_site", "Messages of this node that the site could not read."
        )
        self.lane_dropped = Counter(
            "homeport_node_lane_dropped", "Messages dropped because their lane to the site was full.", "lane"
        )
        self.connected = Value()
        registry.register(self)

    def collect(self) -> Iterator[Family]:
        for each in vars(self).values():
            if isinstance(each, Counter | Histogram):
                yield from each.collect()
        yield gauge("homeport_node_connected", "1 while the node is connected to its site.", self.connected.value)

    def watch(self, journal: Journal, status: NodeStatus) -> "Levels":
        levels = Levels(journal, status)
        self.registry.register(levels)
        return levels


class Levels:
    def __init__(self, journal: Journal, status: NodeStatus) -> None:
        self._journal = journal
        self._status = status

    def collect(self) -> Iterator[Family]:
        states = Tally(
            "removed"
            if entry.order.kind is OrderKind.REMOVE and entry.outcome is OrderOutcome.SUCCEEDED
            else entry.outcome
            for entry in self._journal.entries.values()
        )
        yield gauge(
            "homeport_node_deployments",
            "Deployments in the journal, by state of their newest order.",
            {str(state): states[state] for state in (*OrderOutcome, "removed")},
            "state",
        )
        yield gauge("homeport_node_outbox", "News that the site has not acknowledged.", len(self._journal.outbox))
        is_up = float(self._status.engine_problem is None)
        yield gauge("homeport_node_engine_up", "1 while the engine answers.", is_up)
