"""Changing the site's list of nodes. Reading it is in `serving`."""

from typing import Annotated, Final

from fastapi import Path, Response

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.ports import NodeReception
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routing import Router
from homeport.vocabulary import NodeId

# fmt: off
ACTIONS: Final[Actions] = {
    ("DELETE", "/api/v1/nodes/{node_id}"): Action("nodes.remove", Level.ADMIN, Scope.SITE, Audit.WAIT),
}
# fmt: on


def nodes_routes(reception: NodeReception) -> Routes:
    router = Router(tags=["nodes"])

    @router.delete(
        "/api/v1/nodes/{node_id}",
        summary="Remove a node; its workloads are no longer managed",
        status_code=204,
        response_class=Response,
        responses={404: {}},
    )
    async def remove_node(caller: CallerOf, node_id: Annotated[str, Path(max_length=200)]) -> Response:
        await reception.unregister(NodeId(node_id))
        return Response(status_code=204)

    return Routes(router, ACTIONS)
