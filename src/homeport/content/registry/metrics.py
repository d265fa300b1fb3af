"""Metrics of the registry."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from homeport.lazy_dataclass import dataclass
from homeport.ports import BlobUsage


@dataclass(slots=True)
class Traffic:
    """Bytes since the start."""

    pulled: int = 0
    pushed: int = 0
    collected: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RegistryMetrics(Collector):
    traffic: Traffic
    usage: Callable[[], BlobUsage]

    def collect(self) -> Iterator[Metric]:
        usage = self.usage()
        for name, meaning, value in (
            ("blob_bytes", "What the registry's blobs take on disk.", usage.blob_bytes),
            ("upload_bytes", "What unfinished uploads take on disk.", usage.upload_bytes),
            ("quota_bytes", "What both may take together.", usage.quota_bytes),
        ):
            yield GaugeMetricFamily(f"homeport_registry_{name}", meaning, value)
        for name, meaning, value in (
            ("pulled_bytes", "Bytes of blobs sent.", self.traffic.pulled),
            ("pushed_bytes", "Bytes of blobs received.", self.traffic.pushed),
            ("collected_bytes", "Bytes freed by collecting garbage.", self.traffic.collected),
        ):
            yield CounterMetricFamily(f"homeport_registry_{name}", meaning, value)
