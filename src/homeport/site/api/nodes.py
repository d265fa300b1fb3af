"""Changing the site's list of nodes. Reading it is in `serving`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from homeport.core.model.caller import Caller
from homeport.ports import NodeReception
from homeport.serving.callers import allowed
from homeport.vocabulary import NodeId


def nodes_router(reception: NodeReception) -> APIRouter:
    router = APIRouter(tags=["nodes"])

    @router.delete(
        "/api/v1/nodes/{node_id}",
        summary="Remove a node; what it runs is no longer counted on",
        status_code=204,
        response_class=Response,
        responses={404: {}},
    )
    async def remove_node(
        caller: Annotated[Caller, Depends(allowed("nodes.remove"))], node_id: Annotated[str, Path(max_length=200)]
    ) -> Response:
        await reception.unregister(NodeId(node_id))
        return Response(status_code=204)

    return router
