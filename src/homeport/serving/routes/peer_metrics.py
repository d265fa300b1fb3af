"""Metrics about other roles: their protocol version, and unreadable messages."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from homeport.core.model.protocol import VERSION
from homeport.errors import InvalidInput, UnknownKind
from homeport.ports import Reader

CODES = (InvalidInput.code, UnknownKind.code)


class PeerMetrics(Collector):
    def __init__(self, registry: CollectorRegistry, refused: Mapping[str, int]) -> None:
        self._refused = refused
        """By code, and growing."""
        self._peers = Gauge(
            "homeport_peers", "Known sites and nodes by their protocol.", ["role", "protocol"], registry=registry
        )
        Gauge("homeport_protocol", "Version of the protocol that this role speaks.", registry=registry).set(VERSION)
        registry.register(self)

    async def look(self, reader: Reader) -> None:
        self._peers.clear()
        for role, protocol, count in await reader.peer_protocols():
            self._peers.labels(role, str(protocol)).set(count)

    def collect(self) -> Iterator[Metric]:
        refused = CounterMetricFamily(
            "homeport_messages_refused", "Messages of other roles that could not be read.", labels=["code"]
        )
        for code in CODES:
            refused.add_metric([code], self._refused.get(code, 0))
        yield refused
