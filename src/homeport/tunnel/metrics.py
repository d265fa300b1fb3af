"""Metrics of the tunnels of a role."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from homeport.fleet.shared.tunnels import OpenTunnels


class TunnelMetrics(Collector):
    def __init__(self, tunnels: Mapping[str, OpenTunnels[Any]]) -> None:
        """By what is at their other ends."""
        self._tunnels = tunnels

    def collect(self) -> Iterator[Metric]:
        gauges = (
            ("connections", "Tunnels that are open.", {peer: len(each) for peer, each in self._tunnels.items()}),
            ("streams", "Streams that are open.", {peer: each.streams for peer, each in self._tunnels.items()}),
        )
        for name, meaning, values in gauges:
            gauge = GaugeMetricFamily(f"homeport_tunnel_{name}", meaning, labels=["peer"])
            for peer, value in values.items():
                gauge.add_metric([peer], value)
            yield gauge
        counts = {peer: each.counts() for peer, each in self._tunnels.items()}
        counters = (
            ("streams_opened", "Streams that were asked for.", {peer: each.opened for peer, each in counts.items()}),
            ("streams_refused", "Streams that were refused.", {peer: each.refused for peer, each in counts.items()}),
            ("streams_reset", "Streams that broke off.", {peer: each.resets for peer, each in counts.items()}),
            ("sent_bytes", "Bytes sent.", {peer: each.sent_bytes for peer, each in counts.items()}),
            ("received_bytes", "Bytes received.", {peer: each.received_bytes for peer, each in counts.items()}),
        )
        for name, meaning, values in counters:
            counter = CounterMetricFamily(f"homeport_tunnel_{name}", meaning, labels=["peer"])
            for peer, value in values.items():
                counter.add_metric([peer], value)
            yield counter
