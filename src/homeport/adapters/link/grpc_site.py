"""Serves `homeport.v1.Nodes` over gRPC. Translates messages and errors; decides nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from homeport.errors import HomeportError, InvalidInput, NotFound, PermanentError, Refused, TransientError
from homeport.ports import FromNode, NodeReception, ToNode
from homeport.vocabulary import NodeId
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb
from homeport.wire.v1 import nodes_pb2_grpc as pb_grpc

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
STOP_SECONDS: Final = 1.0
Context = Any
"""grpc's stubs leave the servicer context untyped."""


class GrpcSession:
    """The site's end of one Connect stream."""

    def __init__(self, requests: AsyncIterator[Any], context: Context) -> None:
        self._requests = requests
        self._context = context

    async def send(self, message: ToNode) -> None:
        await self._context.write(convert.to_node_to_proto(message))

    async def __aiter__(self) -> AsyncIterator[FromNode]:
        async for request in self._requests:
            yield convert.from_node_from_proto(request)


class NodesServicer(pb_grpc.NodesServicer):
    def __init__(self, reception: NodeReception) -> None:
        self._reception = reception

    async def RegisterNode(self, request: Any, context: Context) -> Any:  # noqa: N802
        try:
            await self._reception.register(convert.node_info_from_proto(request.node))
        except HomeportError as error:
            await refuse(context, error)
        return pb.RegisterNodeResponse(site=self._reception.site, heartbeat_seconds=self._reception.heartbeat_seconds)

    async def Heartbeat(self, request: Any, context: Context) -> Any:  # noqa: N802
        await _require(context, request.node_id, "node_id")
        try:
            await self._reception.beat(NodeId(request.node_id))
        except HomeportError as error:
            await refuse(context, error)
        return pb.HeartbeatResponse()

    async def UpdateNode(self, request: Any, context: Context) -> Any:  # noqa: N802
        await _require(context, request.node_id, "node_id")
        await _require(context, request.HasField("capabilities"), "capabilities")
        try:
            await self._reception.update(
                NodeId(request.node_id), convert.capabilities_from_proto(request.capabilities)
            )
        except HomeportError as error:
            await refuse(context, error)
        return pb.UpdateNodeResponse()

    async def UnregisterNode(self, request: Any, context: Context) -> Any:  # noqa: N802
        await _require(context, request.node_id, "node_id")
        try:
            await self._reception.unregister(NodeId(request.node_id))
        except HomeportError as error:
            await refuse(context, error)
        return pb.UnregisterNodeResponse()

    async def ListNodes(self, request: Any, context: Context) -> Any:  # noqa: N802
        return pb.ListNodesResponse(
            nodes=[convert.node_to_proto(node) for node in await self._reception.list_nodes()]
        )

    async def Connect(self, request_iterator: AsyncIterator[Any], context: Context) -> None:  # noqa: N802
        try:
            await self._reception.converse(GrpcSession(request_iterator, context))
        except TimeoutError:
            await refuse(context, InvalidInput("a stream begins with hello, and none came"))
        except HomeportError as error:
            await refuse(context, error)


@asynccontextmanager
async def serve_nodes(reception: NodeReception, address: str) -> AsyncIterator[int]:
    """Listens on `host:port`; yields the port. Port 0 takes any free one. Raises Refused when it is busy."""
    async with serve_grpc(address) as (server, port):
        pb_grpc.add_NodesServicer_to_server(NodesServicer(reception), server)  # type: ignore[no-untyped-call]
        await server.start()
        yield port


@asynccontextmanager
async def serve_grpc(address: str) -> AsyncIterator[tuple[grpc.aio.Server, int]]:
    """A bound server that the caller fills with services and starts."""
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.so_reuseport", 0),
            # A link that was cut without a word is noticed by ping, not by the next order.
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ]
    )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise Refused(
            f"Cannot listen for nodes on {address}: the address is in use or not ours.",
            hint="Choose another with --grpc, or stop what listens there: homeport doctor",
        ) from error
    try:
        yield server, port
    finally:
        await server.stop(STOP_SECONDS)


async def refuse(context: Context, error: HomeportError) -> NoReturn:
    """Ends the call with the status that says what kind of mistake it was."""
    await context.abort(_status(error), str(error))
    raise AssertionError("abort always raises")


def _status(error: HomeportError) -> grpc.StatusCode:
    match error:
        case InvalidInput():
            return grpc.StatusCode.INVALID_ARGUMENT
        case NotFound():
            return grpc.StatusCode.NOT_FOUND
        case PermanentError():
            return grpc.StatusCode.FAILED_PRECONDITION
        case TransientError():
            return grpc.StatusCode.UNAVAILABLE
        case _:
            return grpc.StatusCode.INTERNAL


async def _require(context: Context, present: object, field: str) -> None:
    if not present:
        await refuse(context, InvalidInput(f"{field} is missing"))
