"""Metrics of a site's cache."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from homeport.lazy_dataclass import dataclass
from homeport.ports import ContentCache


@dataclass(frozen=True, slots=True, eq=False)
class CacheMetrics(Collector):
    cache: ContentCache

    def collect(self) -> Iterator[Metric]:
        counters = self.cache.counters
        for name, meaning, value in (
            ("hits", "Requests for content that was in the cache.", counters.hits),
            ("misses", "Requests for content that was not in the cache.", counters.misses),
            ("fetched_bytes", "Bytes fetched from registries and other sources.", counters.fetched_bytes),
            ("evicted_bytes", "Bytes evicted to make room.", counters.evicted_bytes),
            ("failed_downloads", "Downloads that were given up.", counters.failed),
        ):
            yield CounterMetricFamily(f"homeport_cache_{name}", meaning, value)
