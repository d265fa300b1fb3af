"""Deciding about nodes from afar: removing one, and who may join. Its site does it; central passes the word on."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from homeport.central.api.sites import SiteRef
from homeport.central.parts import CentralParts
from homeport.core.model.caller import Caller
from homeport.errors import NotFound
from homeport.fleet.overview import find_node
from homeport.fleet.questions import Answer
from homeport.fleet.removal import remove_node
from homeport.fleet.scope import seen_by
from homeport.serving.callers import allowed
from homeport.serving.enrolling import IdentitiesBody, IdentityBody, Name
from homeport.vocabulary import SiteName


def nodes_router(central: CentralParts) -> APIRouter:
    router = APIRouter(tags=["nodes"])

    @router.delete(
        "/api/v1/nodes/{node_id}",
        summary="Remove a node; what it runs is no longer counted on",
        status_code=204,
        response_class=Response,
        responses={404: {}, 409: {}},
    )
    async def delete_node(
        caller: Annotated[Caller, Depends(allowed("nodes.remove"))], node_id: Annotated[str, Path(max_length=200)]
    ) -> Response:
        async with seen_by(caller, central.store).read() as reader:
            await find_node(reader, node_id)
        await remove_node(node_id, central.store, central.calls)
        return Response(status_code=204)

    @router.get(
        "/api/v1/sites/{site}/nodes/identities",
        summary="Who joined a site as a node, who asks to, who was removed",
        responses={404: {}, 503: {}},
    )
    async def list_node_identities(
        caller: Annotated[Caller, Depends(allowed("nodes.approve"))], site: SiteRef
    ) -> IdentitiesBody:
        """The site is asked, and must be connected."""
        return IdentitiesBody.model_validate(await ask(site, "list", "", caller))

    @router.post(
        "/api/v1/sites/{site}/nodes/identities/{name}/approve",
        summary="Let a node in that waits at its site",
        responses={404: {}, 503: {}},
    )
    async def approve_node_identity(
        caller: Annotated[Caller, Depends(allowed("nodes.approve"))], site: SiteRef, name: Name
    ) -> IdentityBody:
        return IdentityBody.model_validate(await ask(site, "approve", name, caller))

    @router.delete(
        "/api/v1/sites/{site}/nodes/identities/{name}",
        summary="Send a node of a site away, at once",
        responses={404: {}, 503: {}},
    )
    async def remove_node_identity(
        caller: Annotated[Caller, Depends(allowed("nodes.approve"))], site: SiteRef, name: Name
    ) -> IdentityBody:
        """What it runs goes on; nothing of it is believed any more. A waiting node is denied."""
        return IdentityBody.model_validate(await ask(site, "remove", name, caller))

    async def ask(site: str, step: str, name: str, caller: Caller) -> Answer:
        async with central.store.read() as reader:
            if site not in {known.name for known in await reader.sites()}:
                raise NotFound(f"There is no site {site}.", hint="List them:  homeport sites list")
        return await central.questions.node_identities(SiteName(site), step, name, caller.name)

    return router
