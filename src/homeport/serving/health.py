"""`/healthz`, `/readyz` and `/metrics`, at the root of every role that serves HTTP.

Alive and ready are two questions: a role whose repository is unreachable is alive, keeps what runs, and says in
`/readyz` what it cannot do.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as MetricCounter

from homeport import __version__
from homeport.fleet.restating import DROPPED, QUEUED_AT
from homeport.ports import Clock, DeploymentFilter, Reader, Store
from homeport.serving.bodies.health import HealthBody, ReadyBody
from homeport.serving.callers import allowed
from homeport.vocabulary import Liveness, State

OK: Final = "ok"
Checks = Callable[[], Awaitable[Mapping[str, str]]]
"""Each check by name, with `ok` or one sentence saying what is wrong."""


class Metrics:
    """One registry for one role, for several roles may share a process."""

    def __init__(self, role: str, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.registry = registry = CollectorRegistry()
        self._answers = MetricCounter(
            "homeport_http_requests", "Answered requests.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "homeport_http_request_seconds",
            "Time to answer; for streams, their length.",
            ["route"],
            registry=registry,
        )
        self._deployments = Gauge("homeport_deployments", "Deployments in each state.", ["state"], registry=registry)
        self._nodes = Gauge("homeport_nodes", "Nodes by their silence.", ["liveness"], registry=registry)
        self._sites = Gauge("homeport_sites", "Known sites.", registry=registry)
        self._events = Gauge("homeport_last_event_id", "Id of the newest event in the log.", registry=registry)
        self._outbox = Gauge("homeport_outbox_size", "Reports that central has not taken yet.", registry=registry)
        self._outbox_bytes = Gauge("homeport_outbox_bytes", "What those reports take.", registry=registry)
        self._outbox_age = Gauge("homeport_outbox_oldest_seconds", "How long the oldest waits.", registry=registry)
        self._dropped = Gauge(
            "homeport_outbox_dropped", "Reports that ever gave way because too many waited.", registry=registry
        )
        info = Gauge("homeport_info", "Which role this is, and its version.", ["role", "version"], registry=registry)
        info.labels(role, __version__).set(1)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._answers.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    async def text(self) -> bytes:
        async with self._store.read() as reader:
            states = Counter(item.state for item in await reader.deployments(DeploymentFilter()))
            nodes = Counter(node.liveness for node in await reader.nodes())
            self._sites.set(len(await reader.sites()))
            self._events.set(await reader.last_event_id())
            await self._look_at_outbox(reader)
        for state in State:
            self._deployments.labels(state.value).set(states[state])
        for liveness in Liveness:
            self._nodes.labels(liveness.value).set(nodes[liveness])
        return generate_latest(self.registry)

    async def _look_at_outbox(self, reader: Reader) -> None:
        self._outbox.set(await reader.outbox_size())
        self._outbox_bytes.set(await reader.outbox_bytes())
        self._dropped.set(int(await reader.value(DROPPED) or 0))
        oldest = [item.body.get(QUEUED_AT) for item in await reader.outbox(limit=1)]
        waits = [self._clock.now() - datetime.fromisoformat(since) for since in oldest if since is not None]
        self._outbox_age.set(max(waits[0].total_seconds(), 0.0) if waits else 0.0)


def health_router(role: str, checks: Checks, metrics: Metrics) -> APIRouter:
    """Whoever supervises the process has no token; whoever scrapes it outside this machine has a viewer's."""
    router = APIRouter(tags=["health"])
    anybody, viewer = [Depends(allowed("health.read"))], [Depends(allowed("metrics.read"))]

    @router.get("/healthz", summary="Is it alive?", dependencies=anybody)
    async def healthz() -> HealthBody:
        return HealthBody(status="ok", role=role, version=__version__)

    @router.get(
        "/readyz",
        summary="Can it do its work, and if not, why?",
        response_model=ReadyBody,
        dependencies=anybody,
        responses={503: {"model": ReadyBody, "description": "It cannot; `checks` says what is wrong."}},
    )
    async def readyz() -> JSONResponse:
        found = await checks()
        ready = all(result == OK for result in found.values())
        body = ReadyBody(status="ready" if ready else "not ready", role=role, checks=found)
        return JSONResponse(body.model_dump(mode="json"), status_code=200 if ready else 503)

    @router.get("/metrics", summary="Prometheus text", response_class=PlainTextResponse, dependencies=viewer)
    async def serve_metrics() -> PlainTextResponse:
        return PlainTextResponse(await metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
