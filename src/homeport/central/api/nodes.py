"""Removing a node from afar. Its site does it; central passes the word on."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from homeport.central.parts import CentralParts
from homeport.fleet.removal import remove_node
from homeport.serving.callers import CallerOf


def nodes_router(central: CentralParts) -> APIRouter:
    router = APIRouter(tags=["nodes"])

    @router.delete(
        "/api/v1/nodes/{node_id}",
        summary="Remove a node; what it runs is no longer counted on",
        status_code=204,
        response_class=Response,
        responses={404: {}, 409: {}},
    )
    async def delete_node(caller: CallerOf, node_id: Annotated[str, Path(max_length=200)]) -> Response:
        await remove_node(node_id, central.store, central.calls)
        return Response(status_code=204)

    return router
