"""The calls of one gRPC connection, for every service: authenticates the client, bounds each request, and ends a call
with the gRPC status of its error. Makes no decisions."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import anyio
from google.protobuf.message import DecodeError, Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.exceptions import ProtocolError as CallError
from grpclib.server import Stream as Call
from h2.exceptions import ProtocolError

from homeport.adapters.link.grpc_connection import GrpcConnection
from homeport.adapters.link.grpclib_seam import raw_stream
from homeport.adapters.local_access import LocalKeys
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.identity import Peer
from homeport.errors import (
    HomeportError,
    InvalidInput,
    NotAuthorized,
    NotFound,
    PermanentError,
    Problem,
    TransientError,
    Unauthenticated,
)
from homeport.log import get_log

log = get_log("homeport.link")

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
REQUEST_SECONDS_MAX: Final = 10.0

OnRefused = Callable[[NewAudit], Awaitable[None]]
Stream = Call[Any, Any]
Unary = Callable[[Any, Peer | None], Awaitable[Message]]
GONE: Final = (ProtocolError, CallError, StreamTerminatedError, OSError)
"""What sending raises when the client has disconnected."""


class GrpcCalls:
    """With `local`, each call has to present one of these keys. `on_refused` writes to the audit trail: every refused
    client, and what `note_done` is called for."""

    def __init__(
        self, connection: GrpcConnection, *, local: LocalKeys | None = None, on_refused: OnRefused | None = None
    ) -> None:
        self._connection = connection
        self._local = local
        self._on_refused = on_refused

    def unary(self, action: str, work: Unary, request_type: Any, reply_type: Any) -> Handler:
        async def answer(call: Stream) -> None:
            async with self.answering(action):
                peer = self.admitted(call)
                await call.send_message(await work(await self._request(call, request_type), peer))

        return Handler(answer, Cardinality.UNARY_UNARY, request_type, reply_type)

    def server_stream(
        self,
        action: str,
        work: Callable[[Any, Peer | None], AsyncIterator[Message]],
        request_type: Any,
        reply_type: Any,
    ) -> Handler:
        """Answers one request with messages until `work` ends or the client disconnects."""

        async def answer(call: Stream) -> None:
            async with self.answering(action):
                peer = self.admitted(call)
                async for message in work(await self._request(call, request_type), peer):
                    await call.send_message(message)

        return Handler(answer, Cardinality.UNARY_STREAM, request_type, reply_type)

    def admitted(self, call: Stream) -> Peer | None:
        """Raises the error for the client."""
        peer = self._connection.admitted()
        if self._local is None:
            return peer
        given = "" if call.metadata is None else str(call.metadata.get("authorization", ""))
        scheme, _, key = given.partition(" ")
        if scheme.lower() != "bearer" or self._local.kind_of(key.strip()) is None:
            raise Unauthenticated("This needs the local key: run it as the user who started this role.")
        return peer

    @asynccontextmanager
    async def answering(self, action: str) -> AsyncIterator[None]:
        """Ends the call with the gRPC status for the kind of error."""
        try:
            yield
        except HomeportError as error:
            if isinstance(error, NotAuthorized | Unauthenticated) or error is self._connection.refusal:
                await self._note(action, error)
                status = Status.PERMISSION_DENIED
            else:
                status = status_of(error)
            raise GRPCError(status, str(error)) from error
        except (GRPCError, *GONE):
            raise  # The client was answered, or has disconnected.
        except Exception as error:
            # Last resort for this call. grpclib would answer UNKNOWN, which leaves open whose fault it is.
            log.exception("call failed by a fault of the site", action=action)
            message = "Homeport could not answer because of a fault of its own; its log has the details."
            raise GRPCError(Status.INTERNAL, message) from error

    async def _request(self, call: Stream, request_type: Any) -> Any:
        try:
            with anyio.fail_after(REQUEST_SECONDS_MAX):
                request = await receive(call, request_type)
        except TimeoutError as error:
            raise InvalidInput("the request did not come in time") from error
        if request is None:
            raise InvalidInput("the request is missing")
        return request

    async def note_done(self, action: str, target: str, *, actor: str, role: str) -> None:
        """Returns when the entry is durable: call it before the change is acknowledged."""
        await self._write_entry(action, target, AuditResult.DONE, actor=actor, role=role, detail={})

    async def _note(self, action: str, error: HomeportError) -> None:
        peer = self._connection.peer
        actor = "anonymous" if peer is None else peer.spiffe_id
        target = error.target if isinstance(error, NotAuthorized) else ""
        detail = {"code": "not-authorized", "why": str(error)}
        await self._write_entry(action, target, AuditResult.REFUSED, actor=actor, role="machine", detail=detail)

    async def _write_entry(
        self, action: str, target: str, result: AuditResult, *, actor: str, role: str, detail: dict[str, Any]
    ) -> None:
        if self._on_refused is not None:
            address = self._connection.address
            entry = NewAudit(datetime.now(UTC), actor, role, address, action, target, result, detail)
            await self._on_refused(entry)


async def receive(call: Stream, kind: Any) -> Any:
    """The next message; None at the end. grpclib reads any length that a peer announces, so the length is checked
    here."""
    raw = raw_stream(call)
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
        raise InvalidInput(f"this is not a valid {kind.DESCRIPTOR.name}: {error}") from error
    return message


def status_of(error: HomeportError) -> Status:
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


def require(present: object, field: str) -> None:
    if not present:
        raise InvalidInput(problems=[Problem(field, "is missing")])
