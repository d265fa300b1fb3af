"""The newest measurements on `/metrics`, as gauges. The number of series is bounded: a scraper must not be able to
read a whole fleet's containers from central by accident."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from homeport.core.telemetry.metrics import METRICS
from homeport.telemetry.shared.latest import Latest

SERIES_MAX: Final = 10_000


class TelemetryCollector(Collector):
    def __init__(self, latest: Callable[[], Iterable[Latest]], *, series_max: int = SERIES_MAX) -> None:
        self._latest = latest
        self._series_max = series_max

    def collect(self) -> Iterator[Metric]:
        """Metrics that only a newer version knows are not shown: their labels would not be known before."""
        families = {
            name: GaugeMetricFamily(_full_name(name), metric.help, labels=["site", "node", *metric.labels])
            for name, metric in METRICS.items()
        }
        shown = hidden = 0
        for each in self._latest():
            for (name, labels), value in each.values.items():
                metric = METRICS.get(name)
                if metric is None:
                    continue
                if shown >= self._series_max:
                    hidden += 1
                    continue
                shown += 1
                said = dict(labels)
                values = [each.site, each.node_id, *(said.get(label, "") for label in metric.labels)]
                families[name].add_metric(values, value)
        yield from (family for family in families.values() if family.samples)
        yield GaugeMetricFamily(
            "homeport_telemetry_series_hidden", "Series that are not shown because there are too many.", value=hidden
        )


def _full_name(name: str) -> str:
    return f"homeport_{name}" if name.startswith("container_") else f"homeport_node_{name}"
