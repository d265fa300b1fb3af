"""Metrics of runs of pipelines. Those that are open are counted in the database at each scrape; the others count what
ended since this replica was started, where it drove them."""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.registry import Collector

from homeport.core.pipelines.lifecycle import RUN_ENDED, RUN_OPEN
from homeport.core.pipelines.model import Run
from homeport.ports import PIPELINE_RUNS, Reader, RunFilter

SECONDS: Final = (0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)


class PipelineMetrics(Collector):
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._open = Gauge(
            "homeport_pipeline_runs", "Runs of pipelines that have not ended, by state.", ["state"], registry=registry
        )
        self._results = Counter(
            "homeport_pipeline_run_results", "Runs of pipelines that ended.", ["outcome"], registry=registry
        )
        self._took = Histogram(
            "homeport_pipeline_run_seconds",
            "From the start of a run to its end.",
            registry=registry,
            buckets=SECONDS,
        )
        for state in RUN_ENDED:
            self._results.labels(state.value.lower())

    def ended(self, run: Run) -> None:
        self._results.labels(run.state.value.lower()).inc()
        if run.finished_at is not None:
            began = run.started_at or run.created_at
            self._took.observe(max(0.0, (run.finished_at - began).total_seconds()))

    async def look(self, reader: Reader) -> None:
        """Before each scrape."""
        counts: Mapping[tuple[object, ...], int] = await reader.counts(
            PIPELINE_RUNS, RunFilter(states=RUN_OPEN), by=("state",)
        )
        for state in RUN_OPEN:
            self._open.labels(state.value).set(counts.get((state.value,), 0))

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()
