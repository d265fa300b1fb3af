"""Serves `homeport.v1.Nodes` over gRPC. Translates messages; makes no decisions."""

from collections.abc import AsyncIterator
from typing import Any, Final

from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler

from homeport.adapters.link.grpc_calls import GONE, GrpcCalls, Stream, receive, require
from homeport.adapters.link.grpc_services import Service
from homeport.core.model.identity import Peer
from homeport.errors import InvalidInput, PeerUnavailable
from homeport.ports import FromNode, NodeReception, ToNode
from homeport.vocabulary import NodeId
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb

SERVICE: Final = "/homeport.v1.Nodes"
NODES_PAGE_MAX: Final = 1_000
"""So many nodes are in one answer of `ListNodes`: gRPC clients take messages of 4 MiB unless configured for more."""


class GrpcSession:
    """The site's end of one Connect stream."""

    def __init__(self, call: Stream) -> None:
        self._call = call

    async def send(self, message: ToNode) -> None:
        try:
            await self._call.send_message(convert.to_node_to_proto(message))
        except GONE as error:
            raise PeerUnavailable(f"the node is gone: {error}") from error

    async def __aiter__(self) -> AsyncIterator[FromNode]:
        while (request := await receive(self._call, pb.FromNode)) is not None:
            yield convert.from_node_from_proto(request)


def nodes_service(reception: NodeReception) -> Service:
    return lambda calls: NodesService(reception, calls).calls()


class NodesService:
    """The calls of one connection."""

    def __init__(self, reception: NodeReception, calls: GrpcCalls) -> None:
        self._reception = reception
        self._calls = calls

    def calls(self) -> dict[str, Any]:
        unary = self._calls.unary
        return {
            f"{SERVICE}/RegisterNode": unary(
                "nodes.register", self._register, pb.RegisterNodeRequest, pb.RegisterNodeResponse
            ),
            f"{SERVICE}/Heartbeat": unary("nodes.beat", self._beat, pb.HeartbeatRequest, pb.HeartbeatResponse),
            f"{SERVICE}/UpdateNode": unary("nodes.update", self._update, pb.UpdateNodeRequest, pb.UpdateNodeResponse),
            f"{SERVICE}/UnregisterNode": unary(
                "nodes.unregister", self._unregister, pb.UnregisterNodeRequest, pb.UnregisterNodeResponse
            ),
            f"{SERVICE}/ListNodes": unary("nodes.list", self._list, pb.ListNodesRequest, pb.ListNodesResponse),
            f"{SERVICE}/Connect": Handler(self._connect, Cardinality.STREAM_STREAM, pb.FromNode, pb.ToNode),
        }

    async def _register(self, request: Any, peer: Peer | None) -> Message:
        await self._reception.register(convert.node_info_from_proto(request.node), peer)
        return pb.RegisterNodeResponse(site=self._reception.site, heartbeat_seconds=self._reception.heartbeat_seconds)

    async def _beat(self, request: Any, peer: Peer | None) -> Message:
        require(request.node_id, "node_id")
        await self._reception.beat(NodeId(request.node_id), peer)
        return pb.HeartbeatResponse()

    async def _update(self, request: Any, peer: Peer | None) -> Message:
        require(request.node_id, "node_id")
        require(request.HasField("capabilities"), "capabilities")
        capabilities = convert.checked_capabilities(request.capabilities)
        await self._reception.update(NodeId(request.node_id), capabilities, peer)
        return pb.UpdateNodeResponse()

    async def _unregister(self, request: Any, peer: Peer | None) -> Message:
        require(request.node_id, "node_id")
        await self._reception.unregister(NodeId(request.node_id), peer)
        return pb.UnregisterNodeResponse()

    async def _list(self, request: Any, peer: Peer | None) -> Message:
        """By id, a page at a time; the token is the last id of the page before."""
        found = [node for node in await self._reception.list_nodes(peer) if node.id > request.page_token]
        size = min(request.page_size, NODES_PAGE_MAX) if request.page_size > 0 else NODES_PAGE_MAX
        page = found[:size]
        token = page[-1].id if len(page) < len(found) else ""
        return pb.ListNodesResponse(nodes=[convert.node_to_proto(node) for node in page], next_page_token=token)

    async def _connect(self, call: Stream) -> None:
        async with self._calls.answering("nodes.connect"):
            try:
                await self._reception.converse(GrpcSession(call), self._calls.admitted(call))
            except TimeoutError as error:
                raise InvalidInput("a stream must begin with hello, and none came") from error
