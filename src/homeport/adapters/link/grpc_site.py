"""Serves `homeport.v1.Nodes` over gRPC. Translates messages and errors; decides nothing."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import anyio
from google.protobuf.message import DecodeError, Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.exceptions import ProtocolError as CallError
from grpclib.server import Stream as Call
from h2.exceptions import ProtocolError

from homeport.adapters.link.grpc_server import serve_grpc
from homeport.adapters.link.visits import Verify, Visit
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.identity import Peer
from homeport.errors import (
    HomeportError,
    InvalidInput,
    NotAuthorized,
    NotFound,
    PeerUnavailable,
    PermanentError,
    TransientError,
    Unauthenticated,
)
from homeport.ports import FromNode, NodeReception, ToNode
from homeport.vocabulary import NodeId
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
REQUEST_SECONDS_MAX: Final = 10.0
SERVICE: Final = "/homeport.v1.Nodes"

OnRefused = Callable[[NewAudit], Awaitable[None]]
Stream = Call[Any, Any]


def serve_nodes(
    reception: NodeReception,
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    verify: Verify | None = None,
    on_refused: OnRefused | None = None,
) -> AbstractAsyncContextManager[int]:
    """Listens on `host:port`; yields the port. Port 0 takes any free one. Raises Refused when it is busy.

    With `tls` (which should ask for a certificate) every peer is identified by `verify`; one that cannot be is
    answered with the reason and let go. `on_refused` hears of everything that was refused for who asked it.
    """
    return serve_grpc(
        lambda visit: NodesService(reception, visit, on_refused).calls(), address, tls=tls, verify=verify
    )


class GrpcSession:
    """The site's end of one Connect stream."""

    def __init__(self, call: Stream) -> None:
        self._call = call

    async def send(self, message: ToNode) -> None:
        try:
            await self._call.send_message(convert.to_node_to_proto(message))
        except (ProtocolError, CallError, StreamTerminatedError, OSError) as error:
            raise PeerUnavailable(f"the node is gone: {error}") from error

    async def __aiter__(self) -> AsyncIterator[FromNode]:
        while (request := await _receive(self._call, pb.FromNode)) is not None:
            yield convert.from_node_from_proto(request)


class NodesService:
    """The calls of one visitor."""

    def __init__(self, reception: NodeReception, visit: Visit, on_refused: OnRefused | None) -> None:
        self._reception = reception
        self._visit = visit
        self._on_refused = on_refused

    def calls(self) -> dict[str, Any]:
        return {
            f"{SERVICE}/RegisterNode": self._unary(self._register, pb.RegisterNodeRequest, pb.RegisterNodeResponse),
            f"{SERVICE}/Heartbeat": self._unary(self._beat, pb.HeartbeatRequest, pb.HeartbeatResponse),
            f"{SERVICE}/UpdateNode": self._unary(self._update, pb.UpdateNodeRequest, pb.UpdateNodeResponse),
            f"{SERVICE}/UnregisterNode": self._unary(
                self._unregister, pb.UnregisterNodeRequest, pb.UnregisterNodeResponse
            ),
            f"{SERVICE}/ListNodes": self._unary(self._list, pb.ListNodesRequest, pb.ListNodesResponse),
            f"{SERVICE}/Connect": Handler(self._connect, Cardinality.STREAM_STREAM, pb.FromNode, pb.ToNode),
        }

    async def _register(self, request: Any, peer: Peer | None) -> Message:
        await self._reception.register(convert.node_info_from_proto(request.node), peer)
        return pb.RegisterNodeResponse(site=self._reception.site, heartbeat_seconds=self._reception.heartbeat_seconds)

    async def _beat(self, request: Any, peer: Peer | None) -> Message:
        _require(request.node_id, "node_id")
        await self._reception.beat(NodeId(request.node_id), peer)
        return pb.HeartbeatResponse()

    async def _update(self, request: Any, peer: Peer | None) -> Message:
        _require(request.node_id, "node_id")
        _require(request.HasField("capabilities"), "capabilities")
        capabilities = convert.capabilities_from_proto(request.capabilities)
        await self._reception.update(NodeId(request.node_id), capabilities, peer)
        return pb.UpdateNodeResponse()

    async def _unregister(self, request: Any, peer: Peer | None) -> Message:
        _require(request.node_id, "node_id")
        await self._reception.unregister(NodeId(request.node_id), peer)
        return pb.UnregisterNodeResponse()

    async def _list(self, request: Any, peer: Peer | None) -> Message:
        return pb.ListNodesResponse(nodes=[convert.node_to_proto(n) for n in await self._reception.list_nodes(peer)])

    async def _connect(self, call: Stream) -> None:
        async with self._answering("nodes.connect"):
            try:
                await self._reception.converse(GrpcSession(call), self._visit.admitted())
            except TimeoutError as error:
                raise InvalidInput("a stream begins with hello, and none came") from error

    def _unary(
        self, work: Callable[[Any, Peer | None], Awaitable[Message]], request_type: Any, reply_type: Any
    ) -> Handler:
        action = "nodes." + work.__name__.strip("_")

        async def answer(call: Stream) -> None:
            async with self._answering(action):
                peer = self._visit.admitted()
                try:
                    with anyio.fail_after(REQUEST_SECONDS_MAX):
                        request = await _receive(call, request_type)
                except TimeoutError as error:
                    raise InvalidInput("the request did not come in time") from error
                if request is None:
                    raise InvalidInput("the request is missing")
                await call.send_message(await work(request, peer))

        return Handler(answer, Cardinality.UNARY_UNARY, request_type, reply_type)

    @asynccontextmanager
    async def _answering(self, action: str) -> AsyncIterator[None]:
        """Ends the call with the status that says what kind of mistake it was."""
        try:
            yield
        except HomeportError as error:
            if isinstance(error, NotAuthorized | Unauthenticated) or error is self._visit.refusal:
                await self._note(action, error)
                status = Status.PERMISSION_DENIED
            else:
                status = _status(error)
            raise GRPCError(status, str(error)) from error

    async def _note(self, action: str, error: HomeportError) -> None:
        if self._on_refused is None:
            return
        peer = self._visit.peer
        actor = "anonymous" if peer is None else peer.spiffe_id
        target = error.target if isinstance(error, NotAuthorized) else ""
        detail = {"code": "not-authorized", "why": str(error)}
        await self._on_refused(
            NewAudit(
                datetime.now(UTC), actor, "machine", self._visit.address, action, target, AuditResult.REFUSED, detail
            )
        )


async def _receive(call: Stream, kind: Any) -> Any:
    """The next message; None when there are no more. grpclib reads whatever length a peer announces, so the length is
    looked at here."""
    raw = call._stream
    try:
        head = await raw.recv_data(5)
        if not head:
            return None
        size = int.from_bytes(head[1:], "big")
        if head[0]:
            raise GRPCError(Status.UNIMPLEMENTED, "compressed messages are not understood")
        if size > MESSAGE_BYTES_MAX:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"a message may have {MESSAGE_BYTES_MAX} bytes, not {size}")
        message = kind()
        message.ParseFromString(await raw.recv_data(size))
    except (DecodeError, AssertionError) as error:
        raise InvalidInput(f"this is no {kind.DESCRIPTOR.name}: {error}") from error
    return message


def _status(error: HomeportError) -> Status:
    match error:
        case InvalidInput():
            return Status.INVALID_ARGUMENT
        case NotFound():
            return Status.NOT_FOUND
        case PermanentError():
            return Status.FAILED_PRECONDITION
        case TransientError():
            return Status.UNAVAILABLE
        case _:
            return Status.INTERNAL


def _require(present: object, field: str) -> None:
    if not present:
        raise InvalidInput(f"{field} is missing")
