"""The telemetry routes, the same at central and at a site. Who may see a node or deployment may see what it uses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Response
from pydantic import StringConstraints
from starlette.responses import JSONResponse

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.event import Deployment
from homeport.core.telemetry.windows import Series
from homeport.errors import InvalidInput, Problem
from homeport.fleet.shared.overview import (
    NodeView,
    Reachability,
    find_deployment,
    find_node,
    find_site,
    view_nodes,
)
from homeport.fleet.shared.scope import seen_by
from homeport.ports import NODES, Clock, NodeFilter, Store
from homeport.serving.bodies.body import Moment
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router
from homeport.telemetry.shared.bodies import (
    ContainerUseBody,
    HeartbeatIntervalBody,
    HeartbeatsBody,
    NodeUseBody,
    TelemetryBody,
    UseBody,
)
from homeport.telemetry.shared.latest import Latest
from homeport.telemetry.shared.series import METRICS_MAX, NODES_MAX, Question
from homeport.telemetry.shared.source import TelemetrySource
from homeport.vocabulary import DeploymentId, NodeId, SiteName

RANGE_DAYS_MAX: Final = 31
HEARTBEATS_HOURS: Final = 24
_READ: Final = Action("telemetry.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/telemetry"): _READ,
    ("GET", "/api/v1/nodes/{node_id}/telemetry"): _READ,
    ("GET", "/api/v1/deployments/{deployment_id}/telemetry"): _READ,
    ("GET", "/api/v1/nodes/{node_id}/heartbeats"): _READ,
}

NodeRef = Annotated[str, Path(max_length=200, description="Its id, or `id@site`.")]
DeploymentRef = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9@-]+$")]
Start = Annotated[Moment | None, Query(alias="from", description="With its time zone; an hour ago by default.")]
End = Annotated[Moment | None, Query(alias="to", description="Now by default.")]
Metric = Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z][a-z0-9_]*$")]


def _question(
    metric: Annotated[
        Sequence[Metric], Query(max_length=METRICS_MAX, description="Repeat it for several; all where left out.")
    ] = (),
    start: Start = None,
    end: End = None,
    step: Annotated[
        float | None, Query(gt=0, le=7 * 86_400, allow_inf_nan=False, description="Seconds between points.")
    ] = None,
) -> Question:
    return Question((), tuple(metric), start=start, end=end, step_seconds=step)


AskedSeries = Annotated[Question, Depends(_question)]
NodesPage = Annotated[PageRequest, Depends(asked(NODES, NodeUseBody))]


def telemetry_routes(
    source: TelemetrySource, store: Store, clock: Clock, reachability: Reachability | None = None
) -> Routes:
    reachability = reachability or Reachability()
    router = Router(tags=["telemetry"])
    _use(router, source, store, clock, reachability)
    _series(router, source, store, clock)
    _heartbeats(router, source, store, clock)
    return Routes(router, ACTIONS)


def _use(router: Router, source: TelemetrySource, store: Store, clock: Clock, reachability: Reachability) -> None:
    @router.get(
        "/api/v1/telemetry",
        summary="What nodes and containers use now",
        response_model=UseBody,
        responses={404: {}},
    )
    async def show_use(
        caller: CallerOf, page: NodesPage, site: Annotated[str | None, Query(max_length=200)] = None
    ) -> Response:
        async with seen_by(caller, store).read() as reader:
            where = NodeFilter(site=None if site is None else SiteName(site))
            found = await reader.page(NODES, where, page.cut)
            if not found.items and site is not None:
                await find_site(reader, site)
            views = await view_nodes(reader, found.items, reachability, clock.now())
        newest = await source.latest(sorted({node.site for node in found.items}))
        shown = {(node.site, node.id) for node in found.items}
        latest = {(each.site, each.node_id): each for each in newest.nodes if (each.site, each.node_id) in shown}
        async with seen_by(caller, store).read() as reader:
            deployments = await reader.deployments_by_ids(sorted(_deployment_ids(latest.values())))
        answer = UseBody(
            nodes=[node_use(view, latest.get((view.node.site, view.node.id))) for view in views],
            containers=container_uses(latest.values(), {each.id: each for each in deployments}),
            unreachable_sites=newest.unreachable,
            next=page.cursor(found.next),
        )
        shown_fields = None if page.fields is None else {"nodes": {"__all__": set(page.fields)}}
        kept = answer.model_dump(mode="json", include=shown_fields) if shown_fields else {}
        return JSONResponse(answer.model_dump(mode="json") | kept)


def _series(router: Router, source: TelemetrySource, store: Store, clock: Clock) -> None:
    @router.get(
        "/api/v1/nodes/{node_id}/telemetry",
        summary="What a node measured, as series",
        responses={404: {}, 409: {}},
    )
    async def show_node_telemetry(caller: CallerOf, node_id: NodeRef, question: AskedSeries) -> TelemetryBody:
        async with seen_by(caller, store).read() as reader:
            node = await find_node(reader, node_id)
        return await _told(source, clock, node.site, _with(question, [node.id]))

    @router.get(
        "/api/v1/deployments/{deployment_id}/telemetry",
        summary="What a deployment's containers used, as series",
        responses={404: {}, 409: {}},
    )
    async def show_deployment_telemetry(
        caller: CallerOf,
        deployment_id: DeploymentRef,
        question: AskedSeries,
        component: Annotated[str, Query(max_length=200)] = "",
        node: Annotated[str, Query(max_length=200, description="Only the instance on this node.")] = "",
    ) -> TelemetryBody:
        async with seen_by(caller, store).read() as reader:
            found = await find_deployment(reader, deployment_id)
            instances = await reader.instances([found.id])
        nodes = sorted({each.node_id for each in instances if node in ("", each.node_id)})[:NODES_MAX]
        return await _told(source, clock, found.site, _with(question, nodes, found.id, component))


async def _told(source: TelemetrySource, clock: Clock, site: SiteName, question: Question) -> TelemetryBody:
    question.range(clock.now())  # Refused here with its fields, whichever role answers.
    answer = await source.series(site, question)
    return TelemetryBody.model_validate({"is_stored": False, **answer, "site": site})


def _with(question: Question, nodes: Sequence[NodeId], deployment: str = "", component: str = "") -> Question:
    return Question(
        tuple(nodes), question.metrics, deployment, component, question.start, question.end, question.step_seconds
    )


def _heartbeats(router: Router, source: TelemetrySource, store: Store, clock: Clock) -> None:
    @router.get(
        "/api/v1/nodes/{node_id}/heartbeats",
        summary="When a node was live, stale or lost",
        responses={404: {}, 409: {}},
    )
    async def show_heartbeats(
        caller: CallerOf, node_id: NodeRef, start: Start = None, end: End = None
    ) -> HeartbeatsBody:
        """The last day where no range is given."""
        now = clock.now()
        last = now if end is None else min(end, now)
        first = last - timedelta(hours=HEARTBEATS_HOURS) if start is None else start
        if not timedelta(0) < last - first <= timedelta(days=RANGE_DAYS_MAX):
            problem = Problem("from", f"must be before `to`, and {RANGE_DAYS_MAX} days before it at most.")
            raise InvalidInput(problems=[problem])
        async with seen_by(caller, store).read() as reader:
            node = await find_node(reader, node_id)
        found = await source.heartbeats(node.site, node.id, first, last)
        return HeartbeatsBody(
            node=node.id,
            site=node.site,
            start=first,
            end=last,
            last_seen=node.last_seen,
            intervals=[
                HeartbeatIntervalBody(state=each.state.value, start=each.start, end=each.end or last)
                for each in found
            ],
        )


_FOLDS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "temperature_celsius": max,
    "gpu_percent": lambda values: sum(values) / len(values),
    "gpu_memory_used_bytes": sum,
    "gpu_temperature_celsius": max,
    "gpu_power_watts": sum,
}
"""How the values of several sensors or GPUs become one."""


def node_use(view: NodeView, latest: Latest | None) -> NodeUseBody:
    node = view.node
    values: dict[str, list[float]] = {}
    for (name, _), value in ({} if latest is None else latest.values).items():
        values.setdefault(name, []).append(value)
    folded: dict[str, Any] = {
        name: _FOLDS.get(name, sum)(found) for name, found in values.items() if name in NodeUseBody.model_fields
    }
    return NodeUseBody(
        node=node.id,
        site=node.site,
        hostname=node.info.hostname,
        liveness=view.liveness.value,
        measured_at=None if latest is None else latest.at,
        memory_bytes=node.info.capabilities.memory_bytes,
        disk_bytes=node.info.capabilities.disk_bytes,
        **folded,
    )


def container_uses(
    latest: Iterable[Latest], deployments: Mapping[DeploymentId, Deployment]
) -> list[ContainerUseBody]:
    """Of deployments that the caller may see, largest use of CPU first."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in latest:
        for series, value in each.values.items():
            name, labels = series[0], dict(series[1])
            if not name.startswith("container_") or DeploymentId(labels.get("deployment", "")) not in deployments:
                continue
            key = each.site, each.node_id, labels.get("container", "")
            of = found.setdefault(key, {"labels": labels, "at": each.at})
            of[name.removeprefix("container_")] = value
    bodies = [
        ContainerUseBody(
            deployment_id=of["labels"]["deployment"],
            deployment=deployments[of["labels"]["deployment"]].name,
            site=site,
            node=node,
            component=of["labels"].get("component", ""),
            container=container,
            measured_at=of["at"],
            cpu_percent=of.get("cpu_percent"),
            memory_bytes=of.get("memory_bytes"),
        )
        for (site, node, container), of in found.items()
    ]
    return sorted(bodies, key=lambda body: (-(body.cpu_percent or 0.0), body.deployment, body.container))


def _deployment_ids(latest: Iterable[Latest]) -> set[DeploymentId]:
    def of(series: Series) -> str:
        return dict(series[1]).get("deployment", "")

    return {DeploymentId(found) for each in latest for series in each.values if (found := of(series))}
