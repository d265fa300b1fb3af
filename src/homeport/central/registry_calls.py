"""`ListNodes` at central, of `homeport.v1` and of `orchion.v1`: for people with a token, who see the nodes of the
sites that it is for, and for accepted machines, which see those of their own site. Nodes themselves join a site."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from homeport.adapters.link.grpc_calls import GrpcCalls
from homeport.adapters.link.grpc_site import Service
from homeport.core.access.actions import Level
from homeport.core.model.caller import Caller
from homeport.core.model.node import Node
from homeport.fleet.shared.scope import seen_by
from homeport.ports import InferencePorts, Store
from homeport.serving.routes.read import READ_NODES
from homeport.wire import nodes as ours
from homeport.wire.orchion import nodes as orchion
from homeport.wire.orchion.v1 import orchestrator_pb2 as orchion_pb
from homeport.wire.v1 import nodes_pb2 as pb

LIST: Final = replace(READ_NODES, least=Level.KNOWN)
"""The row of `GET /api/v1/nodes`, and for machines too: each sees its own site alone."""


def registry_service(store: Store, inference: InferencePorts) -> Service:
    def calls(calls: GrpcCalls) -> dict[str, Any]:
        async def nodes(caller: Caller) -> Sequence[Node]:
            async with seen_by(caller, store).read() as reader:
                return await reader.nodes()

        async def list_ours(request: Any, caller: Caller) -> Any:
            return pb.ListNodesResponse(nodes=[ours.node_to_proto(node) for node in await nodes(caller)])

        async def list_orchion(request: Any, caller: Caller) -> Any:
            listed = await nodes(caller)
            gpus = {} if inference.gpus is None else inference.gpus({(node.site, node.id) for node in listed})
            found = [orchion.node_to_proto(node, gpus.get((node.site, node.id), {})) for node in listed]
            return orchion_pb.ListNodesResponse(nodes=found)

        return {
            "/homeport.v1.Nodes/ListNodes": calls.person_unary(
                LIST, list_ours, pb.ListNodesRequest, pb.ListNodesResponse
            ),
            "/orchion.v1.Orchestrator/ListNodes": calls.person_unary(
                LIST, list_orchion, orchion_pb.ListNodesRequest, orchion_pb.ListNodesResponse
            ),
        }

    return calls
