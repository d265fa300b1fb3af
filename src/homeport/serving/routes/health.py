"""`/healthz`, `/readyz` and `/metrics`, at the root of every role that serves HTTP.

Liveness and readiness differ: a role whose repository is unreachable is alive, keeps what runs, and `/readyz` shows
what it cannot do.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final, Protocol, runtime_checkable

from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client import Counter as MetricCounter
from prometheus_client.registry import Collector

from homeport import __version__
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.values.addresses import is_loopback
from homeport.fleet.shared.answers.status import count_fleet
from homeport.fleet.shared.overview import Reachability
from homeport.fleet.site.reports.resync import DROPPED, QUEUED_AT
from homeport.ports import Clock, Reader, Store
from homeport.serving.bodies.health import HealthBody, ReadyBody
from homeport.serving.capability import Routes
from homeport.serving.routes.peer_metrics import PeerMetrics
from homeport.serving.routing import Router
from homeport.vocabulary import Liveness, State

# Prometheus makes no use of `_created`, one series for each counter and histogram; a node's page has none either.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
OK: Final = "ok"
Checks = Callable[[], Awaitable[Mapping[str, str]]]
"""Each check by name, with `ok` or one sentence saying what is wrong."""


@runtime_checkable
class ReadyProbe(Protocol):
    async def look(self, reader: Reader) -> None: ...


class Metrics:
    """One registry per role, because several roles may share a process."""

    def __init__(
        self,
        role: str,
        store: Store,
        clock: Clock,
        reachability: Reachability | None = None,
        *,
        refused: Mapping[str, int] | None = None,
    ) -> None:
        self._store = store
        self._reachability = reachability or Reachability()
        self._clock = clock
        self.registry = registry = CollectorRegistry()
        self._answers = MetricCounter(
            "homeport_http_requests", "Answered requests.", ["method", "route", "status"], registry=registry
        )
        self._series: dict[tuple[str, str, int], tuple[MetricCounter, Histogram]] = {}
        self._seconds = Histogram(
            "homeport_http_request_seconds",
            "Time to answer; for streams, their length.",
            ["route"],
            registry=registry,
        )
        self._deployments = Gauge("homeport_deployments", "Deployments in each state.", ["state"], registry=registry)
        self._nodes = Gauge("homeport_nodes", "Nodes by liveness.", ["liveness"], registry=registry)
        self._sites = Gauge("homeport_sites", "Known sites.", registry=registry)
        self._events = Gauge("homeport_last_event_id", "Id of the newest event in the log.", registry=registry)
        self._outbox = Gauge(
            "homeport_outbox_size", "Reports that central has not acknowledged yet.", registry=registry
        )
        self._outbox_bytes = Gauge("homeport_outbox_bytes", "Size of those reports.", registry=registry)
        self._outbox_age = Gauge(
            "homeport_outbox_oldest_seconds", "Age of the oldest of those reports.", registry=registry
        )
        self._dropped = Gauge(
            "homeport_outbox_dropped", "Reports dropped because the outbox was full.", registry=registry
        )
        self._looking: list[ReadyProbe] = []
        self._peers = PeerMetrics(registry, {} if refused is None else refused)
        info = Gauge("homeport_info", "Which role this is, and its version.", ["role", "version"], registry=registry)
        info.labels(role, __version__).set(1)

    def add(self, collector: Collector) -> None:
        """One that reads the database has `look`, which is called before each scrape."""
        self.registry.register(collector)
        if isinstance(collector, ReadyProbe):
            self._looking.append(collector)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        # Looking the series up by their labels costs more than counting.
        series = self._series.get((method, route, status))
        if series is None:
            found = self._answers.labels(method, route, str(status)), self._seconds.labels(route)
            series = self._series[method, route, status] = found
        series[0].inc()
        series[1].observe(seconds)

    async def text(self) -> bytes:
        async with self._store.read() as reader:
            counts = await count_fleet(reader, self._reachability, self._clock.now())
            self._sites.set(counts.sites)
            self._events.set(await reader.last_event_id())
            await self._look_at_outbox(reader)
            for each in (self._peers, *self._looking):
                await each.look(reader)
        for state in State:
            self._deployments.labels(state.value).set(counts.deployments.get(state.value, 0))
        for liveness in Liveness:
            self._nodes.labels(liveness.value).set(counts.nodes[liveness.value])
        return generate_latest(self.registry)

    async def _look_at_outbox(self, reader: Reader) -> None:
        self._outbox.set(await reader.outbox_size())
        self._outbox_bytes.set(await reader.outbox_bytes())
        self._dropped.set(await reader.value_as(DROPPED, int) or 0)
        oldest = [item.body.get(QUEUED_AT) for item in await reader.outbox(limit=1)]
        waited = 0.0
        with suppress(TypeError, ValueError):  # a row that something else has changed
            waited = sum((self._clock.now() - datetime.fromisoformat(at)).total_seconds() for at in oldest if at)
        self._outbox_age.set(max(waited, 0.0))


_ALIVE: Final = Action("health.read", Level.OPEN, Scope.NONE, Audit.NONE)  # supervisors have no token
# Counts and routes reveal the size and load of a fleet.
_METRICS: Final = Action("metrics.read", Level.VIEWER, Scope.FLEET, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/healthz"): _ALIVE,
    ("GET", "/readyz"): _ALIVE,
}
# fmt: on


def are_metrics_open(setting: bool | None, address: tuple[str, int] | None) -> bool:
    """Without a setting, to the programs of this machine alone (ADR 0225)."""
    if setting is None:
        return address is not None and is_loopback(address[0])
    return setting


def health_routes(role: str, checks: Checks, metrics: Metrics, *, open_metrics: bool = False) -> Routes:
    """A supervisor has no token; a scraper has a viewer's, or metrics are open."""
    router = Router(tags=["health"])

    @router.get("/healthz", summary="Whether the role is alive")
    async def healthz() -> HealthBody:
        return HealthBody(status="ok", role=role, version=__version__)

    @router.get(
        "/readyz",
        summary="Whether it is ready, and if not, why",
        response_model=ReadyBody,
        responses={503: {"model": ReadyBody, "description": "It cannot; `checks` says what is wrong."}},
    )
    async def readyz() -> JSONResponse:
        found = await checks()
        ready = all(result == OK for result in found.values())
        body = ReadyBody(status="ready" if ready else "not ready", role=role, checks=found)
        return JSONResponse(body.model_dump(mode="json"), status_code=200 if ready else 503)

    @router.get("/metrics", summary="Prometheus text", response_class=PlainTextResponse)
    async def serve_metrics() -> PlainTextResponse:
        return PlainTextResponse(await metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    scraped = replace(_METRICS, least=Level.OPEN) if open_metrics else _METRICS
    return Routes(router, {**ACTIONS, ("GET", "/metrics"): scraped})
