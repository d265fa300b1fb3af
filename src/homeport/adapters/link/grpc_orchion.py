"""Serves the node calls of `orchion.v1`, so that agents of Orchion work with the same nodes as `homeport.v1`.
Its calls for jobs are with the jobs.

Its callers manage the nodes that registered through it, and no other: on a port without authentication, a program of
this machine must not unregister Homeport's own nodes.
"""

from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.message import Message

from homeport.adapters.link.grpc_calls import GrpcCalls, require
from homeport.adapters.link.grpc_services import Service
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.identity import Peer
from homeport.errors import Conflict, NotFound
from homeport.ports import NodeReception, Telemetry
from homeport.vocabulary import NodeId
from homeport.wire.orchion import nodes as convert
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb

ORCHESTRATOR: Final = "/orchion.v1.Orchestrator"
ANYBODY: Final = Caller("orchion", Role.VIEWER, kind=CallerKind.ANONYMOUS)
"""Every program without credentials, on the port that an operator opened for them."""


def orchion_service(reception: NodeReception) -> Service:
    return lambda calls: OrchestratorService(reception, calls).calls()


class OrchestratorService:
    """The calls of one connection."""

    def __init__(self, reception: NodeReception, calls: GrpcCalls) -> None:
        self._reception = reception
        self._calls = calls

    def calls(self) -> dict[str, Any]:
        works = {
            "RegisterNode": self._register,
            "UpdateNode": self._update,
            "Heartbeat": self._beat,
            "ListNodes": self._list,
            "UnregisterNode": self._unregister,
        }
        return {
            f"{ORCHESTRATOR}/{name}": self._calls.unary(
                f"orchion.{work.__name__.strip('_')}",
                work,
                getattr(pb, f"{name}Request"),
                getattr(pb, f"{name}Response"),
            )
            for name, work in works.items()
        }

    async def _register(self, request: Any, peer: Peer | None) -> Message:
        require(request.HasField("node"), "node")
        info = convert.node_info_from_proto(request.node)
        before = await self._reception.node(info.id, peer)
        if before is not None and before.info.software_version != convert.SOFTWARE:
            raise Conflict(f"Node {info.id} runs Homeport's own software. Register under another id.")
        await self._reception.register(info, peer)
        await self._measured(info.id, request.node.capabilities, peer)
        return pb.RegisterNodeResponse()

    async def _update(self, request: Any, peer: Peer | None) -> Message:
        require(request.node_id, "node_id")
        require(request.HasField("capabilities"), "capabilities")
        capabilities = convert.capabilities_from_proto(request.capabilities)
        node_id = await self._own(request.node_id, peer)
        await self._reception.update(node_id, capabilities, peer)
        await self._measured(node_id, request.capabilities, peer)
        return pb.UpdateNodeResponse()

    async def _beat(self, request: Any, peer: Peer | None) -> Message:
        require(request.node_id, "node_id")
        await self._reception.beat(await self._own(request.node_id, peer), peer)
        return pb.HeartbeatResponse()

    async def _unregister(self, request: Any, peer: Peer | None) -> Message:
        require(request.node_id, "node_id")
        await self._reception.unregister(await self._own(request.node_id, peer), peer)
        return pb.UnregisterNodeResponse()

    async def _list(self, request: Any, peer: Peer | None) -> Message:
        nodes, gpus = await self._reception.list_nodes(peer), self._reception.gpus()
        return pb.ListNodesResponse(nodes=[convert.node_to_proto(each, gpus.get(each.id, {})) for each in nodes])

    async def _measured(self, node_id: NodeId, found: Any, peer: Peer | None) -> None:
        """What an agent says of its GPU beside what it has."""
        samples = convert.samples_from_proto(found)
        if samples:
            await self._reception.measured(node_id, Telemetry(datetime.now(UTC), samples), peer)

    async def _own(self, node_id: str, peer: Peer | None) -> NodeId:
        """Raises NotFound for a node that did not register through this API."""
        found = await self._reception.node(NodeId(node_id), peer)
        if found is None or found.info.software_version != convert.SOFTWARE:
            raise NotFound(f"Node {node_id[:200]} is not registered here.", hint="Register it first.")
        return found.id
