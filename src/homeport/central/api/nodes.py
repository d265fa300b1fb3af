"""Removing a node from afar. Its site does it; central passes the word on."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from homeport.central.parts import CentralParts
from homeport.core.model.caller import Caller
from homeport.fleet.overview import find_node
from homeport.fleet.removal import remove_node
from homeport.fleet.scope import seen_by
from homeport.serving.callers import allowed


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

    return router
