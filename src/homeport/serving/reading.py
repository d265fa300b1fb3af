"""The routes that only read. Central and every site serve them from their own store, with this one code, so
the same commands work against either.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query

from homeport import __version__
from homeport.core.model.caller import Caller
from homeport.core.selectors import parse_selector
from homeport.fleet.overview import (
    Watchfulness,
    find_deployment,
    find_node,
    find_site,
    view_deployments,
    view_sites,
)
from homeport.fleet.scope import ReadOnly, seen_by
from homeport.fleet.why import why
from homeport.ports import Clock, DeploymentFilter, Store
from homeport.serving.bodies.deployments import DeploymentBody, DeploymentsBody
from homeport.serving.bodies.fleet import NodeBody, NodesBody, OverviewBody, SiteBody, SitesBody
from homeport.serving.bodies.plans import WhyBody
from homeport.serving.bodies.revisions import HistoryBody
from homeport.serving.callers import allowed
from homeport.serving.server import Stopping
from homeport.serving.showing import deployment_body, history_body, node_body, site_body, why_body
from homeport.serving.sse import EVENT_STREAM, EventStream, cursor_from, deployment_events, fleet_events
from homeport.vocabulary import SiteName, State

COMMIT_VALUE = "indexed_commit"
"""Where central keeps the commit its tables are equal to, and a site the one it has applied."""

DeploymentRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9@-]+$",
        description="The id, a prefix of it that fits only one deployment, or `name@site`.",
    ),
]
Name = Annotated[str | None, Query(max_length=200)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Resume after this event.")]
After = Annotated[
    int | None, Query(ge=0, le=2**53, description="Like `Last-Event-ID`, for those who cannot send it.")
]

SSE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events. Without a cursor the present state comes first, then `snapshot`.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
}


LabelSelector = Annotated[
    str | None, Query(max_length=1000, description="Only those whose labels match: `region=eu,tier!=test`.")
]

DeploymentReader = Annotated[Caller, Depends(allowed("deployments.read"))]
EventReader = Annotated[Caller, Depends(allowed("events.read"))]
SiteReader = Annotated[Caller, Depends(allowed("sites.read"))]
NodeReader = Annotated[Caller, Depends(allowed("nodes.read"))]
OverviewReader = Annotated[Caller, Depends(allowed("overview.read"))]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the reading routes need of their role."""

    role: str
    store: Store
    clock: Clock
    stopping: Stopping
    watchfulness: Watchfulness
    commit_value: str = COMMIT_VALUE

    def of(self, caller: Caller) -> ReadOnly:
        """The store as the caller may see it."""
        return seen_by(caller, self.store)


def reading_router(reading: Reading) -> APIRouter:
    router = APIRouter()
    _deployments(router, reading)
    _streams(router, reading)
    _places(router, reading)
    _reasons(router, reading)
    return router


def _deployments(router: APIRouter, reading: Reading) -> None:
    @router.get("/api/v1/deployments", tags=["deployments"], summary="List deployments")
    async def list_deployments(
        caller: DeploymentReader,
        *,
        site: Name = None,
        name: Name = None,
        state: State | None = None,
        rollout_id: Name = None,
        archived: Annotated[bool, Query(description="Show those that are gone for good instead.")] = False,
    ) -> DeploymentsBody:
        where = DeploymentFilter(
            site=None if site is None else SiteName(site),
            name=name,
            state=state,
            rollout_id=rollout_id,
            archived=archived,
        )
        async with reading.of(caller).read() as reader:
            found = await reader.deployments(where)
            views = await view_deployments(reader, found, reading.watchfulness, reading.clock.now())
        return DeploymentsBody(deployments=[deployment_body(view) for view in views])

    @router.get(
        "/api/v1/deployments/{deployment_id}",
        tags=["deployments"],
        summary="Show one deployment",
        responses={404: {}, 409: {}},
    )
    async def show_deployment(caller: DeploymentReader, deployment_id: DeploymentRef) -> DeploymentBody:
        async with reading.of(caller).read() as reader:
            found = await find_deployment(reader, deployment_id)
            views = await view_deployments(reader, [found], reading.watchfulness, reading.clock.now())
        return deployment_body(views[0])

    @router.get(
        "/api/v1/deployments/{deployment_id}/history",
        tags=["deployments"],
        summary="Every step of a deployment, with actor, reason and time",
        responses={404: {}, 409: {}},
    )
    async def show_history(caller: DeploymentReader, deployment_id: DeploymentRef) -> HistoryBody:
        async with reading.of(caller).read() as reader:
            found = await find_deployment(reader, deployment_id)
            entries = await reader.history(found.id)
        return HistoryBody(deployment_id=found.id, history=[history_body(entry) for entry in entries])


def _streams(router: APIRouter, reading: Reading) -> None:
    @router.get(
        "/api/v1/events",
        tags=["events"],
        summary="Everything that happens, live",
        status_code=200,
        response_class=EventStream,
        responses=SSE_RESPONSES,
    )
    async def stream_events(
        caller: EventReader, last_event_id: LastEventId = None, after: After = None
    ) -> EventStream:
        cursor = cursor_from(last_event_id, after)
        return EventStream(fleet_events(reading.of(caller), after=cursor), reading.stopping)

    @router.get(
        "/api/v1/deployments/{deployment_id}/events",
        tags=["events"],
        summary="What happens to one deployment, live",
        status_code=200,
        response_class=EventStream,
        responses={**SSE_RESPONSES, 404: {}, 409: {}},
    )
    async def stream_deployment_events(
        caller: EventReader,
        deployment_id: DeploymentRef,
        last_event_id: LastEventId = None,
        after: After = None,
        until: Annotated[
            Literal["settled"] | None, Query(description="End the stream once what was asked for is done or failed.")
        ] = None,
    ) -> EventStream:
        cursor = cursor_from(last_event_id, after)
        async with reading.of(caller).read() as reader:
            found = await find_deployment(reader, deployment_id)
        frames = deployment_events(reading.of(caller), found.id, after=cursor, until_settled=until == "settled")
        return EventStream(frames, reading.stopping)


def _reasons(router: APIRouter, reading: Reading) -> None:
    @router.get(
        "/api/v1/why/{thing}",
        tags=["overview"],
        summary="Why a deployment or a node is as it is, decision by decision",
        responses={404: {}, 409: {}},
    )
    async def explain(
        caller: DeploymentReader,
        thing: Annotated[
            str, Path(min_length=1, max_length=200, description="A deployment or a node, also NAME@SITE.")
        ],
    ) -> WhyBody:
        async with reading.of(caller).read() as reader:
            found = await why(reader, thing, reading.watchfulness, reading.clock.now())
        return why_body(found)


def _places(router: APIRouter, reading: Reading) -> None:
    @router.get("/api/v1/sites", tags=["sites"], summary="List sites")
    async def list_sites(caller: SiteReader, selector: LabelSelector = None) -> SitesBody:
        wanted = parse_selector(selector or "")
        bodies = await _site_bodies(reading, caller)
        return SitesBody(sites=[site for site in bodies if wanted.unmet(site.labels) is None])

    @router.get("/api/v1/sites/{site}", tags=["sites"], summary="Show one site", responses={404: {}})
    async def show_site(caller: SiteReader, site: Annotated[str, Path(max_length=200)]) -> SiteBody:
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            views = await view_sites(reader, reading.watchfulness, reading.clock.now())
        return next(site_body(view) for view in views if view.site.name == found.name)

    @router.get("/api/v1/nodes", tags=["nodes"], summary="List nodes")
    async def list_nodes(caller: NodeReader, site: Name = None) -> NodesBody:
        return NodesBody(nodes=await _node_bodies(reading, caller, site))

    @router.get("/api/nodes", tags=["nodes"], summary="List nodes, as a bare array")
    async def list_nodes_bare(caller: NodeReader, site: Name = None) -> list[NodeBody]:
        return await _node_bodies(reading, caller, site)

    @router.get("/api/v1/nodes/{node_id}", tags=["nodes"], summary="Show one node", responses={404: {}})
    async def show_node(caller: NodeReader, node_id: Annotated[str, Path(max_length=200)]) -> NodeBody:
        async with reading.of(caller).read() as reader:
            return node_body(await find_node(reader, node_id))

    @router.get("/api/v1/overview", tags=["overview"], summary="The whole fleet in one call")
    async def show_overview(caller: OverviewReader) -> OverviewBody:
        sites, nodes = await _site_bodies(reading, caller), await _node_bodies(reading, caller, None)
        counts: dict[str, int] = {}
        for site in sites:
            for state, count in site.deployments.items():
                counts[state] = counts.get(state, 0) + count
        async with reading.of(caller).read() as reader:
            return OverviewBody(
                version=__version__,
                role=reading.role,
                commit=await reader.value(reading.commit_value),
                sites=sites,
                nodes=nodes,
                deployments=counts,
                last_event_id=await reader.last_event_id(),
            )


async def _site_bodies(reading: Reading, caller: Caller) -> list[SiteBody]:
    async with reading.of(caller).read() as reader:
        views = await view_sites(reader, reading.watchfulness, reading.clock.now())
    return [site_body(view) for view in views]


async def _node_bodies(reading: Reading, caller: Caller, site: str | None) -> list[NodeBody]:
    async with reading.of(caller).read() as reader:
        nodes = await reader.nodes(None if site is None else SiteName(site))
    return [node_body(node) for node in nodes]
