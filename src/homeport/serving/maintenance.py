"""Draining nodes and holding updates: the same routes at a site, which does it, and at central, which asks it."""

from datetime import datetime, timedelta
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Path, Query
from pydantic import AwareDatetime, Field

from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Hold
from homeport.core.model.node import Node
from homeport.core.reconcile.holds import active
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.fleet.overview import find_deployment, find_node, find_site
from homeport.ports import Reader
from homeport.serving.bodies.body import Body
from homeport.serving.bodies.fleet import HoldBody, HoldsBody, NodeBody
from homeport.serving.callers import allowed
from homeport.serving.reading import Reading
from homeport.serving.showing import hold_body, node_body
from homeport.vocabulary import DeploymentId, SiteName

NodeRef = Annotated[str, Path(max_length=200)]
SiteRef = Annotated[str, Path(max_length=200)]
DeploymentName = Annotated[
    str | None, Query(max_length=200, description="Its name, id or a prefix of it; the whole site when left out.")
]
NodeDrainer = Annotated[Caller, Depends(allowed("nodes.drain"))]
SiteHolder = Annotated[Caller, Depends(allowed("sites.hold"))]
SiteReader = Annotated[Caller, Depends(allowed("sites.read"))]


class Drain(Body):
    reason: str = Field(default="", max_length=500)


class HoldUpdates(Body):
    """Give either `lasts_seconds` or `expires_at`."""

    reason: str = Field(default="", max_length=500)
    deployment: str | None = Field(default=None, max_length=200)
    """Its name, id or a prefix of it; the whole site when left out."""
    lasts_seconds: float | None = Field(default=None, allow_inf_nan=False, le=10**9)
    expires_at: AwareDatetime | None = None


class Keeper(Protocol):
    """Whoever makes an operator's word true."""

    async def drain(self, node: Node, reason: str) -> None: ...
    async def undrain(self, node: Node) -> None: ...
    async def hold(self, hold: Hold) -> None: ...
    async def release(self, site: SiteName, deployment_id: DeploymentId | None, *, by: str) -> None: ...


def maintenance_router(reading: Reading, keeper: Keeper) -> APIRouter:
    router = APIRouter()
    _nodes(router, reading, keeper)
    _holds(router, reading, keeper)
    return router


def _nodes(router: APIRouter, reading: Reading, keeper: Keeper) -> None:
    async def shown(caller: Caller, node: Node) -> NodeBody:
        async with reading.of(caller).read() as reader:
            return node_body(await find_node(reader, f"{node.id}@{node.site}"))

    @router.post(
        "/api/v1/nodes/{node_id}/drain",
        tags=["nodes"],
        summary="Empty a node: what it runs moves to others, and nothing new comes",
        responses={404: {}, 409: {}},
    )
    async def drain_node(caller: NodeDrainer, node_id: NodeRef, body: Drain) -> NodeBody:
        async with reading.of(caller).read() as reader:
            node = await find_node(reader, node_id)
        await keeper.drain(node, body.reason.strip() or f"{caller.name} wants it empty")
        return await shown(caller, node)

    @router.delete(
        "/api/v1/nodes/{node_id}/drain",
        tags=["nodes"],
        summary="Let a node take work again",
        responses={404: {}, 409: {}},
    )
    async def undrain_node(caller: NodeDrainer, node_id: NodeRef) -> NodeBody:
        async with reading.of(caller).read() as reader:
            node = await find_node(reader, node_id)
        await keeper.undrain(node)
        return await shown(caller, node)


def _holds(router: APIRouter, reading: Reading, keeper: Keeper) -> None:
    @router.get("/api/v1/sites/{site}/holds", tags=["sites"], summary="What is held at a site", responses={404: {}})
    async def list_holds(caller: SiteReader, site: SiteRef) -> HoldsBody:
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            holds = active(await reader.holds(found.name), reading.clock.now())
        return HoldsBody(holds=[hold_body(hold) for hold in holds])

    @router.post(
        "/api/v1/sites/{site}/holds",
        tags=["sites"],
        summary="Leave a site, or one deployment of it, as it is for a while",
        responses={404: {}, 409: {}},
    )
    async def hold_updates(caller: SiteHolder, site: SiteRef, body: HoldUpdates) -> HoldBody:
        """Newer revisions and removals wait; repairs and work under way go on. It ends by itself."""
        now = reading.clock.now()
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            deployment_id = await _deployment_at(reader, found.name, body.deployment)
        hold = Hold(found.name, deployment_id, body.reason.strip(), caller.name, now, _end(body, now))
        await keeper.hold(hold)
        return hold_body(hold)

    @router.delete(
        "/api/v1/sites/{site}/holds",
        tags=["sites"],
        summary="Let updates through again",
        responses={404: {}, 409: {}},
    )
    async def release_hold(caller: SiteHolder, site: SiteRef, deployment: DeploymentName = None) -> HoldsBody:
        async with reading.of(caller).read() as reader:
            found = await find_site(reader, site)
            deployment_id = await _deployment_at(reader, found.name, deployment)
        await keeper.release(found.name, deployment_id, by=caller.name)
        async with reading.of(caller).read() as reader:
            left = active(await reader.holds(found.name), reading.clock.now())
        return HoldsBody(holds=[hold_body(hold) for hold in left])


def _end(body: HoldUpdates, now: datetime) -> datetime:
    if (body.lasts_seconds is None) == (body.expires_at is None):
        raise InvalidInput(problems=[Problem("lasts_seconds", "say how long, or until when with expires_at.")])
    if body.expires_at is not None:
        return body.expires_at
    assert body.lasts_seconds is not None
    return now + timedelta(seconds=body.lasts_seconds)


async def _deployment_at(reader: Reader, site: SiteName, text: str | None) -> DeploymentId | None:
    """A deployment of this site by its name, its id or a prefix of that."""
    if text is None:
        return None
    try:
        return (await find_deployment(reader, f"{text.partition('@')[0]}@{site}")).id
    except NotFound:
        found = await find_deployment(reader, text)
    if found.site != site:
        raise NotFound(f"{found.name} is a deployment of site {found.site}, not of {site}.")
    return found.id
