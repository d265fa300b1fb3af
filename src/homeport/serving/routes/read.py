"""The read-only routes. Central and every site serve them from their own store, with the same code, so the same
commands work against either.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Header, Path, Query, Request, Response
from pydantic import StringConstraints

from homeport import __version__
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.caller import Caller
from homeport.core.model.event import HistoryLine, Subject
from homeport.core.values.filters import DEPLOYMENT_WORDS, LENGTH_MAX, WORDS, parse_filter
from homeport.core.values.selectors import parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.fleet.shared.answers.status import fleet_status
from homeport.fleet.shared.answers.why import why
from homeport.fleet.shared.overview import (
    DeploymentView,
    NodeView,
    Reachability,
    bare_site,
    find_deployment,
    find_node,
    find_site,
    view_deployments,
    view_nodes,
    view_sites,
)
from homeport.fleet.shared.scope import ReadOnly, seen_by
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    DEPLOYMENTS,
    NODES,
    SITES,
    Clock,
    Cut,
    DeploymentFilter,
    Key,
    Listing,
    NodeFilter,
    SiteFilter,
    Store,
)
from homeport.serving.bodies.deployments import DeploymentBody, DeploymentsBody
from homeport.serving.bodies.fleet import (
    AttentionBody,
    NodeBody,
    NodesBody,
    OrchionNodeBody,
    OverviewBody,
    SiteBody,
    SiteCountsBody,
    SitesBody,
)
from homeport.serving.bodies.plans import WhyBody
from homeport.serving.bodies.revisions import HistoryBody, HistoryEntryBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import LIMIT_MAX, PageRequest, asked
from homeport.serving.routing import Router
from homeport.serving.server.run import Stopping
from homeport.serving.server.sse import EVENT_STREAM, EventStream, cursor_from, deployment_events, fleet_events
from homeport.serving.server.tail import About, Tail
from homeport.serving.to_bodies import (
    deployment_body,
    history_body,
    node_body,
    orchion_node_body,
    site_body,
    why_body,
)
from homeport.vocabulary import Liveness, NodeId, SiteName, State

SUBJECTS_MAX: Final = 100
TAILS_MAX = 100
"""How many scopes may share an event tail; beyond that the cache is cleared."""
COMMIT_VALUE = "indexed_commit"
"""The key of central's indexed commit, and of a site's applied one."""

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
Contains = Annotated[
    str | None, Query(max_length=200, description="Only those whose name contains this text; case is ignored.")
]
FilterText = Annotated[
    str | None,
    Query(
        alias="filter",
        max_length=LENGTH_MAX,
        description="The filter language: words of the name, and `site:gdansk-*`, `node:`, `app:`, `state:`, "
        "`label:region=north`, `code:`; `-` before a part negates it.",
        examples=["site:gdansk-* -state:INSTALLED"],
    ),
]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Resume after this event.")]
After = Annotated[
    int | None, Query(ge=0, le=2**53, description="Like `Last-Event-ID`, for those who cannot send it.")
]

Subjects = Annotated[
    Sequence[Annotated[str, StringConstraints(max_length=300, pattern=r"^[a-z]+/.+$")]],
    Query(
        max_length=SUBJECTS_MAX,
        description="Only what is about this thing, as kind/id: `deployment/…`, `rollout/…`, `node/…`, `site/…`; "
        "repeat it for several.",
    ),
]

SSE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events. Without a cursor the present state comes first, then `snapshot`.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
}


NodesPage = Annotated[PageRequest, Depends(asked(NODES, NodeBody))]
OrchionPage = Annotated[PageRequest, Depends(asked(NODES, OrchionNodeBody))]
HISTORY: Final[Listing[HistoryLine, None]] = Listing("history", {"oldest": (int,)})
LabelSelector = Annotated[
    str | None, Query(max_length=1000, description="Only those whose labels match: `region=eu,tier!=test`.")
]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the read-only routes need of their role."""

    role: str
    store: Store
    clock: Clock
    stopping: Stopping
    reachability: Reachability
    commit_value: str = COMMIT_VALUE
    _tails: dict[tuple[SiteName, ...], Tail] = field(default_factory=dict, repr=False)

    def of(self, caller: Caller) -> ReadOnly:
        """The store as the caller may see it."""
        return seen_by(caller, self.store)

    def tail(self, caller: Caller) -> Tail:
        """The newest events as the caller may see them, shared by all callers of the same scope."""
        scope = tuple(sorted(caller.sites))
        if scope not in self._tails:
            if len(self._tails) >= TAILS_MAX:
                self._tails.clear()
            self._tails[scope] = Tail(self.of(caller))
        return self._tails[scope]


_DEPLOYMENTS: Final = Action("deployments.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
_EVENTS: Final = Action("events.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
READ_NODES: Final = Action("nodes.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/deployments"): _DEPLOYMENTS,
    ("GET", "/api/v1/deployments/{deployment_id}"): _DEPLOYMENTS,
    ("GET", "/api/v1/deployments/{deployment_id}/history"): _DEPLOYMENTS,
    ("GET", "/api/v1/why/{thing}"): _DEPLOYMENTS,
    ("GET", "/api/v1/events"): _EVENTS,
    ("GET", "/api/v1/deployments/{deployment_id}/events"): _EVENTS,
    ("GET", "/api/v1/sites"): Action("sites.read", Level.VIEWER, Scope.SEEN, Audit.NONE),
    ("GET", "/api/v1/sites/{site}"): Action("sites.read", Level.VIEWER, Scope.SITE, Audit.NONE),
    ("GET", "/api/v1/nodes"): READ_NODES,
    ("GET", "/api/nodes"): READ_NODES,
    ("GET", "/api/v1/nodes/{node_id}"): READ_NODES,
    ("GET", "/api/v1/overview"): Action("overview.read", Level.VIEWER, Scope.SEEN, Audit.NONE),
}
# fmt: on


def reading_routes(reading: Reading) -> Routes:
    router = Router()
    _deployments(router, reading)
    _streams(router, reading)
    _places(router, reading)
    _nodes(router, reading)
    _reasons(router, reading)
    return Routes(router, ACTIONS)


def _deployments(router: Router, reading: Reading) -> None:
    @router.get(
        "/api/v1/deployments",
        tags=["deployments"],
        summary="List deployments",
        response_model=DeploymentsBody,
        responses={404: {}},
    )
    async def list_deployments(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(DEPLOYMENTS, DeploymentBody))],
        where: Annotated[DeploymentFilter, Depends(_deployment_filter)],
    ) -> Response:
        async with reading.of(caller).read() as reader:
            found = await reader.page(DEPLOYMENTS, where, page.cut)
            if not found.items and where.site is not None:
                await find_site(reader, where.site)
            if page.shows("instances", "note", "hold", "running_versions"):
                views = await view_deployments(reader, found.items, reading.reachability, reading.clock.now())
            else:
                views = [DeploymentView(row, (), "") for row in found.items]
        return page.answer("deployments", [deployment_body(view) for view in views], found.next)

    @router.get(
        "/api/v1/deployments/{deployment_id}",
        tags=["deployments"],
        summary="Show one deployment",
        responses={404: {}, 409: {}},
    )
    async def show_deployment(caller: CallerOf, deployment_id: DeploymentRef) -> DeploymentBody:
        async with reading.of(caller).read() as reader:
            found = await find_deployment(reader, deployment_id)
            views = await view_deployments(reader, [found], reading.reachability, reading.clock.now())
        return deployment_body(views[0])

    @router.get(
        "/api/v1/deployments/{deployment_id}/history",
        tags=["deployments"],
        summary="Every step of a deployment, with actor, reason and time",
        response_model=HistoryBody,
        responses={404: {}, 409: {}},
    )
    async def show_history(
        caller: CallerOf,
        deployment_id: DeploymentRef,
        page: Annotated[PageRequest, Depends(asked(HISTORY, HistoryEntryBody))],
    ) -> Response:
        """Oldest first."""
        after = 0 if page.cut.after is None else int(str(page.cut.after[0]))
        limit = page.cut.limit or LIMIT_MAX
        async with reading.of(caller).read() as reader:
            found = await find_deployment(reader, deployment_id)
            lines = await reader.history_after(after, limit=limit + 1, deployment_id=found.id)
        key = (lines[limit - 1].id,) if len(lines) > limit else None
        bodies = [history_body(line.entry) for line in lines[:limit]]
        return page.answer("history", bodies, key, deployment_id=found.id)


def _streams(router: Router, reading: Reading) -> None:
    @router.get(
        "/api/v1/events",
        tags=["events"],
        summary="Everything that happens, live",
        status_code=200,
        response_class=EventStream,
        responses=SSE_RESPONSES,
    )
    async def stream_events(
        caller: CallerOf,
        last_event_id: LastEventId = None,
        after: After = None,
        subject: Subjects = (),
        site: Name = None,
    ) -> EventStream:
        cursor = cursor_from(last_event_id, after)
        subjects = frozenset(Subject(*each.split("/", maxsplit=1)) for each in subject)
        about = About(subjects, None if site is None else SiteName(site))
        return EventStream(fleet_events(reading.tail(caller), after=cursor, about=about), reading.stopping)

    @router.get(
        "/api/v1/deployments/{deployment_id}/events",
        tags=["events"],
        summary="What happens to one deployment, live",
        status_code=200,
        response_class=EventStream,
        responses={**SSE_RESPONSES, 404: {}, 409: {}},
    )
    async def stream_deployment_events(
        caller: CallerOf,
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


def _reasons(router: Router, reading: Reading) -> None:
    @router.get(
        "/api/v1/why/{thing}",
        tags=["overview"],
        summary="Why a deployment or a node is as it is, decision by decision",
        responses={404: {}, 409: {}},
    )
    async def explain(
        caller: CallerOf,
        thing: Annotated[
            str, Path(min_length=1, max_length=200, description="A deployment or a node, also NAME@SITE.")
        ],
    ) -> WhyBody:
        async with reading.of(caller).read() as reader:
            found = await why(reader, thing, reading.reachability, reading.clock.now())
        return why_body(found)


def _places(router: Router, reading: Reading) -> None:
    @router.get("/api/v1/sites", tags=["sites"], summary="List sites", response_model=SitesBody)
    async def list_sites(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(SITES, SiteBody))],
        *,
        selector: LabelSelector = None,
        reachable: Annotated[bool | None, Query(description="Only those in reach, or only the others.")] = None,
        contains: Contains = None,
        filtering: FilterText = None,
    ) -> Response:
        now = reading.clock.now()
        window = reading.reachability.window(now)
        chosen = parse_selector(selector or "")
        parts = parse_filter(filtering or "", WORDS)
        where = SiteFilter(selector=chosen, in_reach=reachable, contains=contains, parts=parts, window=window)
        async with reading.of(caller).read() as reader:
            found = await reader.page(SITES, where, page.cut)
            if page.shows("nodes", "nodes_live", "deployments", "holds"):
                views = await view_sites(reader, found.items, reading.reachability, now)
            else:
                views = [bare_site(site, reading.reachability, now) for site in found.items]
        return page.answer("sites", [site_body(view) for view in views], found.next)

    @router.get("/api/v1/sites/{site}", tags=["sites"], summary="Show one site", responses={404: {}})
    async def show_site(caller: CallerOf, site: Annotated[str, Path(max_length=200)]) -> SiteBody:
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            (view,) = await view_sites(reader, [found], reading.reachability, reading.clock.now())
        return site_body(view)


def _nodes(router: Router, reading: Reading) -> None:
    @router.get("/api/v1/nodes", tags=["nodes"], summary="List nodes", response_model=NodesBody, responses={404: {}})
    async def list_nodes(
        caller: CallerOf,
        page: NodesPage,
        *,
        site: Name = None,
        liveness: Annotated[Liveness | None, Query()] = None,
        contains: Contains = None,
        filtering: FilterText = None,
    ) -> Response:
        where = NodeFilter(
            site=None if site is None else SiteName(site),
            liveness=liveness,
            contains=contains,
            parts=parse_filter(filtering or "", WORDS),
        )
        views, after = await _node_views(reading, caller, page.cut, where)
        return page.answer("nodes", [node_body(view) for view in views], after)

    @router.get(
        "/api/nodes",
        tags=["nodes"],
        summary="List nodes, as a bare array",
        response_model=list[OrchionNodeBody],
        responses={404: {}},
    )
    async def list_nodes_bare(caller: CallerOf, request: Request, page: OrchionPage, site: Name = None) -> Response:
        """The next page is in the `Link` header, where there is one."""
        where = NodeFilter(site=None if site is None else SiteName(site))
        views, after = await _node_views(reading, caller, page.cut, where)
        bodies = [orchion_node_body(view) for view in views]
        cursor = page.cursor(after)
        following = str(request.url.include_query_params(cursor=cursor).replace(scheme="", netloc=""))
        headers = {} if cursor is None else {"Link": f'<{following}>; rel="next"'}
        return Response(page.array(bodies), media_type="application/json", headers=headers)

    @router.get("/api/v1/nodes/{node_id}", tags=["nodes"], summary="Show one node", responses={404: {}})
    async def show_node(caller: CallerOf, node_id: Annotated[str, Path(max_length=200)]) -> NodeBody:
        async with reading.of(caller).read() as reader:
            found = await find_node(reader, node_id)
            (view,) = await view_nodes(reader, [found], reading.reachability, reading.clock.now())
        return node_body(view)

    @router.get("/api/v1/overview", tags=["overview"], summary="The whole fleet in one call")
    async def show_overview(caller: CallerOf) -> OverviewBody:
        async with reading.of(caller).read() as reader:
            found = await fleet_status(reader, reading.reachability, reading.clock.now())
            return OverviewBody(
                version=__version__,
                role=reading.role,
                commit=await reader.value(reading.commit_value),
                sites=SiteCountsBody(count=found.counts.sites, reachable=found.counts.sites_in_reach),
                nodes=found.counts.nodes,
                devices=found.devices,
                deployments=found.counts.deployments,
                jobs=found.counts.jobs,
                attention=[
                    AttentionBody(kind=each.kind, name=each.name, site=each.site, why=each.why)
                    for each in found.attention
                ],
                attention_counts=found.attention_counts,
                last_event_id=await reader.last_event_id(),
            )


def _deployment_filter(
    *,
    site: Name = None,
    name: Name = None,
    contains: Contains = None,
    filtering: FilterText = None,
    app_name: Name = None,
    state: Annotated[str | None, Query(json_schema_extra={"enum": [each.value for each in State]})] = None,
    rollout_id: Name = None,
    node: Annotated[str | None, Query(max_length=200, description="Only those that this node has.")] = None,
    archived: Annotated[bool, Query(description="Show those that were removed permanently instead.")] = False,
    attention: Annotated[
        bool,
        Query(description="Only those that failed, are unhealthy, or run another release than Git asks for."),
    ] = False,
) -> DeploymentFilter:
    return DeploymentFilter(
        site=None if site is None else SiteName(site),
        name=name,
        contains=contains,
        parts=parse_filter(filtering or "", DEPLOYMENT_WORDS),
        app_name=app_name,
        state=None if state is None else _state(state),
        rollout_id=rollout_id,
        node=None if node is None else NodeId(node),
        archived=archived,
        attention=attention,
    )


def _state(text: str) -> State:
    try:
        return State(text.upper())
    except ValueError:
        message = f'"{text}" is not a state; use one of {", ".join(State)}.'
        raise InvalidInput(problems=[Problem("state", message)]) from None


async def _node_views(
    reading: Reading, caller: Caller, cut: Cut, where: NodeFilter
) -> tuple[Sequence[NodeView], Key | None]:
    now = reading.clock.now()
    async with reading.of(caller).read() as reader:
        found = await reader.page(NODES, replace(where, window=reading.reachability.window(now)), cut)
        if not found.items and where.site is not None:
            await find_site(reader, where.site)
        return await view_nodes(reader, found.items, reading.reachability, now), found.next
