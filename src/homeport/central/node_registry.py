"""The nodes of every site over gRPC, in `homeport.v1` and in `orchion.v1`: for people with a token, who see the nodes
of the sites that it is for, and for accepted machines, which see those of their own site.

Nodes themselves join a site. One that dials central gets a sentence that says so.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from homeport.adapters.link.grpc_calls import GrpcCalls
from homeport.adapters.link.grpc_services import Service
from homeport.adapters.link.grpc_site import NODES_PAGE_MAX
from homeport.core.access.actions import Level
from homeport.core.model.caller import Caller
from homeport.core.model.node import Node
from homeport.errors import InvalidInput, Problem, Refused
from homeport.fleet.shared.scope import seen_by
from homeport.ports import NODES, WHOLE, Cut, InferencePorts, Key, NodeFilter, Page, Store
from homeport.serving.pages import BadCursor, decode_cursor, encode_cursor
from homeport.serving.routes.read import READ_NODES
from homeport.wire import nodes as ours
from homeport.wire.orchion import nodes as orchion
from homeport.wire.orchion.v1 import orchestrator_pb2 as orchion_pb
from homeport.wire.v1 import nodes_pb2 as pb

LIST: Final = replace(READ_NODES, least=Level.KNOWN)
"""The row of `GET /api/v1/nodes`, and for machines too: each sees its own site alone."""
JOIN_A_SITE: Final = "Nodes join a site, not central: start it with  homeport node --site HOST:PORT"
OF_SITES: Final = {
    "RegisterNode": "register",
    "Heartbeat": "beat",
    "UpdateNode": "update",
    "UnregisterNode": "unregister",
    "Connect": "connect",
}
"""The calls that sites answer, with their actions in the audit trail."""


def node_registry(store: Store, inference: InferencePorts) -> Service:
    def calls(calls: GrpcCalls) -> dict[str, Any]:
        async def nodes(caller: Caller, cut: Cut) -> Page[Node]:
            async with seen_by(caller, store).read() as reader:
                return await reader.page(NODES, NodeFilter(), cut)

        async def list_ours(request: Any, caller: Caller) -> Any:
            size = min(request.page_size, NODES_PAGE_MAX) if request.page_size > 0 else NODES_PAGE_MAX
            page = await nodes(caller, Cut(size, _after(request.page_token), NODES.default_order))
            token = "" if page.next is None else encode_cursor(NODES.name, NODES.default_order, page.next)
            listed = [ours.node_to_proto(node) for node in page.items]
            return pb.ListNodesResponse(nodes=listed, next_page_token=token)

        async def list_orchion(request: Any, caller: Caller) -> Any:
            listed = (await nodes(caller, WHOLE)).items  # its contract has no pages
            gpus = {} if inference.gpus is None else inference.gpus({(node.site, node.id) for node in listed})
            found = [orchion.node_to_proto(node, gpus.get((node.site, node.id), {})) for node in listed]
            return orchion_pb.ListNodesResponse(nodes=found)

        listing, orchion_listing = pb.ListNodesRequest, orchion_pb.ListNodesRequest
        return {
            **_refused(calls, pb.DESCRIPTOR.services_by_name["Nodes"], "nodes"),
            **_refused(calls, orchion_pb.DESCRIPTOR.services_by_name["Orchestrator"], "orchion"),
            "/homeport.v1.Nodes/ListNodes": calls.person_unary(LIST, list_ours, listing, pb.ListNodesResponse),
            "/orchion.v1.Orchestrator/ListNodes": calls.person_unary(
                LIST, list_orchion, orchion_listing, orchion_pb.ListNodesResponse
            ),
        }

    return calls


def _refused(calls: GrpcCalls, service: Any, noun: str) -> Mapping[str, Any]:
    return {
        f"/{service.full_name}/{method.name}": calls.refused(f"{noun}.{OF_SITES[method.name]}", Refused, JOIN_A_SITE)
        for method in service.methods
        if method.name in OF_SITES
    }


def _after(token: str) -> Key | None:
    if not token:
        return None
    try:
        order, key = decode_cursor(NODES, token)
    except BadCursor:
        order, key = "", ()
    if order != NODES.default_order:
        message = "does not belong to this list: pass the previous `next_page_token` unchanged, or none."
        raise InvalidInput(problems=[Problem("page_token", message)])
    return key
