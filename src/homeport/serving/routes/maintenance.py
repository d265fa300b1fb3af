"""Draining nodes and holding updates: the same routes at a site, which does it, and at central, which forwards it."""

from datetime import datetime, timedelta
from typing import Annotated, Final, Protocol

from fastapi import Depends, Path, Query, Request, Response
from pydantic import Field

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Hold
from homeport.core.model.node import Node, Tunable
from homeport.core.node.tuning import LABELS_MAX, TuneChange, tuned
from homeport.core.reconcile.holds import active
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.fleet.shared.overview import find_deployment, find_node, find_site, view_nodes
from homeport.ports import HOLDS, HoldFilter, SeenReader
from homeport.serving.bodies.body import Body, Moment
from homeport.serving.bodies.fleet import HoldBody, HoldsBody, NodeBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf, note_detail
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routes.read import Reading
from homeport.serving.routing import Router
from homeport.serving.to_bodies import hold_body, node_body
from homeport.vocabulary import DeploymentId, SiteName

NodeRef = Annotated[str, Path(max_length=200)]
SiteRef = Annotated[str, Path(max_length=200)]
DeploymentName = Annotated[
    str | None, Query(max_length=200, description="Its name, id or a prefix of it; the whole site when left out.")
]


class Drain(Body):
    reason: str = Field(default="", max_length=500)


class NodeSettingsChange(Body):
    heartbeat_seconds: float | None = Field(default=None, allow_inf_nan=False)
    log_level: str | None = Field(default=None, max_length=20)
    labels: dict[str, str | None] | None = Field(default=None, max_length=LABELS_MAX)
    telemetry_seconds: float | None = Field(default=None, allow_inf_nan=False)


class HoldUpdates(Body):
    """Give either `lasts_seconds` or `expires_at`."""

    reason: str = Field(default="", max_length=500)
    deployment: str | None = Field(default=None, max_length=200)
    """Its name, id or a prefix of it; the whole site when left out."""
    lasts_seconds: float | None = Field(default=None, allow_inf_nan=False, le=10**9)
    expires_at: Moment | None = None


class MaintenanceRequests(Protocol):
    """Carries out an operator's request."""

    async def drain(self, node: Node, reason: str) -> None: ...
    async def undrain(self, node: Node) -> None: ...
    async def tune(self, node: Node, tunable: Tunable) -> None: ...
    async def hold(self, hold: Hold) -> None: ...
    async def release(self, site: SiteName, deployment_id: DeploymentId | None, *, by: str) -> None: ...


# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/nodes/{node_id}/drain"): Action("nodes.drain", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("DELETE", "/api/v1/nodes/{node_id}/drain"): Action("nodes.undrain", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("PATCH", "/api/v1/nodes/{node_id}/settings"): Action("nodes.set", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("GET", "/api/v1/sites/{site}/holds"): Action("sites.read", Level.VIEWER, Scope.SITE, Audit.NONE),
    ("POST", "/api/v1/sites/{site}/holds"): Action("sites.hold", Level.OPERATOR, Scope.SITE, Audit.WAIT),
    ("DELETE", "/api/v1/sites/{site}/holds"): Action("sites.release", Level.OPERATOR, Scope.SITE, Audit.WAIT),
}
# fmt: on


def maintenance_routes(reading: Reading, keeper: MaintenanceRequests) -> Routes:
    router = Router()
    _nodes(router, reading, keeper)
    _holds(router, reading, keeper)
    return Routes(router, ACTIONS)


def _nodes(router: Router, reading: Reading, keeper: MaintenanceRequests) -> None:
    async def shown(caller: Caller, node: Node) -> NodeBody:
        async with reading.of(caller).read() as reader:
            found = await find_node(reader, f"{node.id}@{node.site}")
            (view,) = await view_nodes(reader, [found], reading.reachability, reading.clock.now())
        return node_body(view)

    @router.post(
        "/api/v1/nodes/{node_id}/drain",
        tags=["nodes"],
        summary="Drain a node: its workloads move to others, and it gets no new ones",
        responses={404: {}, 409: {}},
    )
    async def drain_node(caller: CallerOf, node_id: NodeRef, body: Drain) -> NodeBody:
        async with reading.of(caller).read() as reader:
            node = await find_node(reader, node_id)
        await keeper.drain(node, body.reason.strip() or f"{caller.name} wants it empty")
        return await shown(caller, node)

    @router.delete(
        "/api/v1/nodes/{node_id}/drain",
        tags=["nodes"],
        summary="End the drain of a node",
        responses={404: {}, 409: {}},
    )
    async def undrain_node(caller: CallerOf, node_id: NodeRef) -> NodeBody:
        async with reading.of(caller).read() as reader:
            node = await find_node(reader, node_id)
        await keeper.undrain(node)
        return await shown(caller, node)

    @router.patch(
        "/api/v1/nodes/{node_id}/settings",
        tags=["nodes"],
        summary="Change settings of a node while it runs",
        responses={404: {}, 409: {}},
    )
    async def set_node(caller: CallerOf, request: Request, node_id: NodeRef, body: NodeSettingsChange) -> NodeBody:
        """Omitted settings stay unchanged; 0, an empty text, or null for a label resets to the node's own value."""
        async with reading.of(caller).read() as reader:
            node = await find_node(reader, node_id)
        change = TuneChange(body.heartbeat_seconds, body.log_level, body.labels, body.telemetry_seconds)
        note_detail(request, **{key: str(value) for key, value in body.model_dump(exclude_none=True).items()})
        await keeper.tune(node, tuned(node.tunable, change))
        return await shown(caller, node)


def _holds(router: Router, reading: Reading, keeper: MaintenanceRequests) -> None:
    @router.get(
        "/api/v1/sites/{site}/holds",
        tags=["sites"],
        summary="What is held at a site",
        response_model=HoldsBody,
        responses={404: {}},
    )
    async def list_holds(
        caller: CallerOf, site: SiteRef, page: Annotated[PageRequest, Depends(asked(HOLDS, HoldBody))]
    ) -> Response:
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            holds = await reader.page(HOLDS, HoldFilter(site=found.name), page.cut)
        left = active(holds.items, reading.clock.now())
        return page.answer("holds", [hold_body(hold) for hold in left], holds.next)

    @router.post(
        "/api/v1/sites/{site}/holds",
        tags=["sites"],
        summary="Hold the updates of a site, or of one deployment",
        responses={404: {}, 409: {}},
    )
    async def hold_updates(caller: CallerOf, request: Request, site: SiteRef, body: HoldUpdates) -> HoldBody:
        """Newer revisions and removals wait; repairs and work under way continue. It ends by itself."""
        now = reading.clock.now()
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            deployment_id = await _deployment_at(reader, found.name, body.deployment)
        hold = Hold(found.name, deployment_id, body.reason.strip(), caller.name, now, _end(body, now))
        note_detail(request, deployment_id=deployment_id or "", until=hold.expires_at.isoformat(), reason=hold.reason)
        await keeper.hold(hold)
        return hold_body(hold)

    @router.delete(
        "/api/v1/sites/{site}/holds",
        tags=["sites"],
        summary="Release a hold",
        responses={404: {}, 409: {}},
    )
    async def release_hold(
        caller: CallerOf, request: Request, site: SiteRef, deployment: DeploymentName = None
    ) -> HoldsBody:
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            deployment_id = await _deployment_at(reader, found.name, deployment)
        note_detail(request, deployment_id=deployment_id or "")
        await keeper.release(found.name, deployment_id, by=caller.name)
        async with reading.of(caller).read() as reader:
            left = active(await reader.holds(found.name), reading.clock.now())
        return HoldsBody(holds=[hold_body(hold) for hold in left])


def _end(body: HoldUpdates, now: datetime) -> datetime:
    if (body.lasts_seconds is None) == (body.expires_at is None):
        raise InvalidInput(problems=[Problem("lasts_seconds", "give a duration, or the end with expires_at.")])
    if body.expires_at is not None:
        return body.expires_at
    assert body.lasts_seconds is not None
    return now + timedelta(seconds=body.lasts_seconds)


async def _deployment_at(reader: SeenReader, site: SiteName, text: str | None) -> DeploymentId | None:
    """A deployment of this site by its name, its id or a prefix of it."""
    if text is None:
        return None
    try:
        return (await find_deployment(reader, f"{text.partition('@')[0]}@{site}")).id
    except NotFound:
        found = await find_deployment(reader, text)
    if found.site != site:
        raise NotFound(f"{found.name} is a deployment of site {found.site}, not of {site}.")
    return found.id
