"""Metrics of jobs, the same at central and at a site. Those that are open are counted in the database at each scrape;
the others count what ended since the role was started."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.registry import Collector

from homeport.core.jobs.job import ENDED, OPEN, Job
from homeport.ports import JOBS, JobFilter, Reader
from homeport.vocabulary import JobState

SECONDS: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)


class JobMetrics(Collector):
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._open = Gauge("homeport_jobs", "Jobs that have not ended, by state.", ["state"], registry=registry)
        self._depth = Gauge("homeport_jobs_queue_depth", "Jobs that no node has yet.", registry=registry)
        self._results = Counter("homeport_job_results", "Jobs that ended.", ["outcome"], registry=registry)
        self._waiting = Histogram(
            "homeport_job_wait_seconds",
            "From the submission of a job to the start of its last attempt.",
            registry=registry,
            buckets=SECONDS,
        )
        self._running = Histogram(
            "homeport_job_run_seconds", "How long its last attempt ran.", registry=registry, buckets=SECONDS
        )
        for state in ENDED:
            self._results.labels(state.value.lower())

    def ended(self, jobs: Iterable[Job]) -> None:
        """Those of them that have ended, each once."""
        for job in jobs:
            if job.state not in ENDED:
                continue
            self._results.labels(job.state.value.lower()).inc()
            if job.started_at is not None:
                self._waiting.observe(_seconds(job.created_at, job.started_at))
                self._running.observe(_seconds(job.started_at, job.finished_at or job.updated_at))

    async def look(self, reader: Reader) -> None:
        """Before each scrape."""
        counts: Mapping[tuple[object, ...], int] = await reader.counts(JOBS, JobFilter(states=OPEN), by=("state",))
        for state in OPEN:
            self._open.labels(state.value).set(counts.get((state.value,), 0))
        self._depth.set(counts.get((JobState.PENDING.value,), 0))

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()


def _seconds(since: datetime, until: datetime) -> float:
    """The clocks of two machines may differ."""
    return max(0.0, (until - since).total_seconds())
