"""Serves `homeport.v1.Nodes` over gRPC. Translates messages; makes no decisions."""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler

from homeport.adapters.link.grpc_calls import GONE, GrpcCalls, OnRefused, People, Stream, receive, require
from homeport.adapters.link.grpc_connection import Verify
from homeport.adapters.link.grpc_server import serve_grpc
from homeport.adapters.local_access import LocalKeys
from homeport.adapters.tunnel.entry import TunnelEntry, TunnelReception
from homeport.core.model.identity import Peer
from homeport.errors import InvalidInput, PeerUnavailable
from homeport.ports import FromNode, NodeReception, ToNode
from homeport.vocabulary import NodeId
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb

SERVICE: Final = "/homeport.v1.Nodes"

Service = Callable[[GrpcCalls], dict[str, Any]]
"""The calls of one service by path, for one connection."""


def serve_nodes(
    reception: NodeReception,
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    verify: Verify | None = None,
    local: LocalKeys | None = None,
    people: People | None = None,
    on_refused: OnRefused | None = None,
    services: Sequence[Service] = (),
    tunnels: TunnelReception | None = None,
) -> AbstractAsyncContextManager[int]:
    """Listens on `host:port`; yields the port. Port 0 takes any free one. Raises Refused when it is in use.

    With `tls` (which should request a client certificate) every peer is authenticated by `verify`; a refused one gets
    the reason and is disconnected. With `local`, each call has to present one of these keys. `people` authenticates
    the callers of people's calls; with a `tls` that only asks for a certificate, they need none. `on_refused` is
    called for every refused peer. `services` are served in addition, and `tunnels` are accepted where they are given.
    """
    every: Sequence[Service] = [lambda calls: NodesService(reception, calls).calls(), *services]
    return serve_services(
        every,
        address,
        tls=tls,
        verify=verify,
        local=local,
        people=people,
        on_refused=on_refused,
        tunnels=tunnels,
    )


def serve_services(
    services: Sequence[Service],
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    verify: Verify | None = None,
    local: LocalKeys | None = None,
    people: People | None = None,
    on_refused: OnRefused | None = None,
    tunnels: TunnelReception | None = None,
) -> AbstractAsyncContextManager[int]:
    def enter(host: str, on_made: Callable[[TunnelEntry], None]) -> TunnelEntry:
        assert tunnels is not None
        return TunnelEntry(tunnels, host, verify=verify, local=local, on_refused=on_refused, on_made=on_made)

    return serve_grpc(
        lambda connection: {
            path: call
            for service in services
            for path, call in service(
                GrpcCalls(connection, local=local, people=people, on_refused=on_refused)
            ).items()
        },
        address,
        tls=tls,
        verify=verify,
        tunnels=None if tunnels is None else enter,
        takes_tokens=people is not None,
    )


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
        return pb.ListNodesResponse(nodes=[convert.node_to_proto(n) for n in await self._reception.list_nodes(peer)])

    async def _connect(self, call: Stream) -> None:
        async with self._calls.answering("nodes.connect"):
            try:
                await self._reception.converse(GrpcSession(call), self._calls.admitted(call))
            except TimeoutError as error:
                raise InvalidInput("a stream begins with hello, and none came") from error
