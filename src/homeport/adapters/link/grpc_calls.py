"""The calls of one gRPC connection, for every service: authenticates the client, bounds each request, and ends a call
with the gRPC status of its error. Makes no decisions.

There are two kinds. Calls of machines (`unary`) are authenticated by the connection: its certificate, or the local
key. Calls of people and their programs (`person_unary`, `person_stream`) are authenticated by the access token in the
`authorization` metadata, authorized by a row of the table of actions, and audited by its rule, as over HTTP.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol

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
from homeport.core.access.actions import Action, Audit
from homeport.core.access.roles import refusal
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.identity import Peer
from homeport.errors import (
    HomeportError,
    InvalidInput,
    NotAuthorized,
    NotFound,
    PermanentError,
    Problem,
    TooManyAttempts,
    TransientError,
    Unauthenticated,
)
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log

log = get_log("homeport.link")

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
REQUEST_SECONDS_MAX: Final = 10.0
INTERRUPTED_SECONDS: Final = 2.0
TOKEN_HINT: Final = (
    "Send one as the metadata  authorization: Bearer hp_… ; on its own machine a role also takes the local key, run "
    "as the user who started it."
)
UNRECORDED: Final = "The request was carried out, but it could not be written to the audit trail."
ASK_HINT: Final = "Ask an administrator for a token with this right."

OnRefused = Callable[[NewAudit], Awaitable[None]]
Stream = Call[Any, Any]
Unary = Callable[[Any, Peer | None], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]
"""Returns when the client may be sent more. Raises one of `GONE` when it has disconnected."""
PersonWork = Callable[[Any, Caller], Awaitable[Message]]
PersonStream = Callable[[Any, Caller, SendMessage], Awaitable[None]]
Target = Callable[[Any], str]
"""What was changed, by the reply: for the audit trail."""
GONE: Final = (ProtocolError, CallError, StreamTerminatedError, OSError)
"""What sending raises when the client has disconnected."""


class People(Protocol):
    """Who calls, as over HTTP: the same tokens, keys, limits and revocations."""

    async def authenticate(self, headers: Mapping[str, str], address: str, peer: Peer | None) -> Caller:
        """Raises Unauthenticated, NotAuthorized and TooManyAttempts; anonymous without credentials."""
        ...

    def track_request(self, caller: Caller) -> AbstractContextManager[anyio.CancelScope]:
        """Cancels the scope when the caller's authorization ends. Raises TooManyAttempts."""
        ...


@dataclass(slots=True)
class _Person:
    """One call of a person."""

    caller: Caller
    is_recorded: bool = False


class GrpcCalls:
    """With `local`, each call of a machine has to present one of these keys. `people` authenticates people; without
    it, they are refused. `on_refused` writes to the audit trail: every refused client, and every change."""

    def __init__(
        self,
        connection: GrpcConnection,
        *,
        local: LocalKeys | None = None,
        people: People | None = None,
        on_refused: OnRefused | None = None,
    ) -> None:
        self._connection = connection
        self._local = local
        self._people = people
        self._on_refused = on_refused

    def unary(self, action: str, work: Unary, request_type: Any, reply_type: Any) -> Handler:
        async def answer(call: Stream) -> None:
            async with self.answering(action):
                peer = self.admitted(call)
                await call.send_message(await work(await self._request(call, request_type), peer))

        return Handler(answer, Cardinality.UNARY_UNARY, request_type, reply_type)

    def refused(self, action: str, kind: type[HomeportError], why: str) -> Handler:
        """A call that another role answers: who may call gets a sentence that says where it is."""

        async def answer(call: Stream) -> None:
            async with self.answering(action):
                self.admitted(call)
                raise kind(why)

        return Handler(answer, Cardinality.STREAM_STREAM, Message, Message)

    def person_unary(
        self, action: Action, work: PersonWork, request_type: Any, reply_type: Any, *, target: Target | None = None
    ) -> Handler:
        """A call of a person. With the action's audit rule `wait`, the answer waits until the entry is durable."""

        async def answer(call: Stream) -> None:
            async with self._answering_person(action, call) as person:
                reply = await work(await self._request(call, request_type), person.caller)
                if action.audit is not Audit.NONE:
                    await self._record_done(action, person, "" if target is None else target(reply))
                await call.send_message(reply)

        return Handler(answer, Cardinality.UNARY_UNARY, request_type, reply_type)

    def person_stream(
        self,
        action: Action,
        work: PersonStream,
        request_type: Any,
        reply_type: Any,
    ) -> Handler:
        """Answers a person with messages until `work` ends, the client disconnects or its authorization ends."""

        async def answer(call: Stream) -> None:
            async with self._answering_person(action, call) as person:
                await work(await self._request(call, request_type), person.caller, call.send_message)

        return Handler(answer, Cardinality.UNARY_STREAM, request_type, reply_type)

    def open_stream(
        self, action: str, work: PersonStream, caller: Caller, request_type: Any, reply_type: Any
    ) -> Handler:
        """For programs without credentials, on a port that was opened for them: all of them are `caller`."""

        async def answer(call: Stream) -> None:
            async with self.answering(action):
                self.admitted(call)
                await work(await self._request(call, request_type), caller, call.send_message)

        return Handler(answer, Cardinality.UNARY_STREAM, request_type, reply_type)

    def admitted(self, call: Stream) -> Peer | None:
        """Raises the error for the client."""
        peer = self._connection.admitted()
        if self._local is None:
            return peer
        scheme, _, key = _authorization(call).partition(" ")
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
            log.exception("call failed with an internal error", action=action)
            message = "Homeport could not answer because of an internal error; its log has the details."
            raise GRPCError(Status.INTERNAL, message) from error

    @asynccontextmanager
    async def _answering_person(self, action: Action, call: Stream) -> AsyncIterator[_Person]:
        person = _Person(Caller("anonymous", Role.VIEWER, self._connection.address, kind=CallerKind.ANONYMOUS))
        try:
            async with self.answering(action.name):
                try:
                    person.caller = await self._authenticated(call)
                    _authorize(person.caller, action)
                    assert self._people is not None, "no caller is authenticated without it"
                    with self._people.track_request(person.caller) as scope:
                        yield person
                    if scope.cancelled_caught:
                        raise Unauthenticated("The access token was revoked.", hint=TOKEN_HINT)
                except HomeportError as error:
                    await self._record_failure(action, person, error)
                    raise GRPCError(status_of_person(error), _told(error)) from error
        finally:
            if action.audit is not Audit.NONE and not person.is_recorded:
                # A change that was begun and never answered, as far as there is time.
                with anyio.move_on_after(INTERRUPTED_SECONDS, shield=True):
                    await self._record(action, person, "", AuditResult.FAILED, {"code": "interrupted"})

    async def _authenticated(self, call: Stream) -> Caller:
        """Raises the error for the client."""
        if self._connection.refusal is not None:
            raise self._connection.refusal
        if self._people is None:
            raise NotAuthorized("This port is for machines.", hint="Use the port of central, or the HTTP API.")
        given = _authorization(call)
        headers = {"authorization": given} if given else {}
        return await self._people.authenticate(headers, self._connection.address, self._connection.peer)

    async def _request(self, call: Stream, request_type: Any) -> Any:
        try:
            with anyio.fail_after(REQUEST_SECONDS_MAX):
                request = await receive(call, request_type)
        except TimeoutError as error:
            raise InvalidInput("the request did not come in time") from error
        if request is None:
            raise InvalidInput("the request is missing")
        return request

    async def _record_done(self, action: Action, person: _Person, target: str) -> None:
        """Returns when the entry is durable."""
        try:
            await self._record(action, person, target, AuditResult.DONE, {})
        except HomeportError as error:
            log.warning("request missing from the audit log", why=str(error), action=action.name)
            raise HomeportError(UNRECORDED, hint="Look at what is there before you repeat it.") from error

    async def _record_failure(self, action: Action, person: _Person, error: HomeportError) -> None:
        is_refused = isinstance(error, NotAuthorized | Unauthenticated | TooManyAttempts)
        if person.is_recorded or not (is_refused or action.audit is not Audit.NONE):
            return
        name = getattr(error, "name", "")
        if isinstance(error, Unauthenticated) and name:
            person.caller = Caller(name, Role.VIEWER, self._connection.address, kind=CallerKind.ANONYMOUS)
        target = error.target if isinstance(error, NotAuthorized) else ""
        result = AuditResult.REFUSED if is_refused else AuditResult.FAILED
        try:
            await self._record(action, person, target, result, {"code": error.code, "why": str(error)})
        except HomeportError as missed:
            log.warning("request missing from the audit log", why=str(missed), action=action.name)

    async def _record(
        self, action: Action, person: _Person, target: str, result: AuditResult, detail: dict[str, Any]
    ) -> None:
        person.is_recorded = True
        caller = person.caller
        role = {CallerKind.ANONYMOUS: "", CallerKind.MACHINE: "machine"}.get(caller.kind, caller.role.value)
        detail |= {"key": caller.key} if caller.key else {}
        await self._write_entry(action.name, target, result, actor=caller.name, role=role, detail=detail)

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


def _authorize(caller: Caller, action: Action) -> None:
    """Raises Unauthenticated or NotAuthorized unless the caller may do this, at some site at least."""
    why = refusal(caller, action)
    if why is not None and caller.kind is CallerKind.ANONYMOUS:
        raise Unauthenticated("This needs an access token.", hint=TOKEN_HINT)
    if why is not None:
        raise NotAuthorized(why, hint=ASK_HINT)


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
            raise GRPCError(Status.UNIMPLEMENTED, "compressed messages are not supported")
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


def status_of_person(error: HomeportError) -> Status:
    match error:
        case Unauthenticated():
            return Status.UNAUTHENTICATED
        case NotAuthorized():
            return Status.PERMISSION_DENIED
        case TooManyAttempts():
            return Status.RESOURCE_EXHAUSTED
        case _:
            return status_of(error)


def _told(error: HomeportError) -> str:
    """A refusal says what to do in the same text: a gRPC status has no field for it."""
    is_refused = isinstance(error, NotAuthorized | Unauthenticated | TooManyAttempts)
    return f"{error} {error.hint}" if is_refused and error.hint else str(error)


def _authorization(call: Stream) -> str:
    return "" if call.metadata is None else str(call.metadata.get("authorization", ""))


def require(present: object, field: str) -> None:
    if not present:
        raise InvalidInput(problems=[Problem(field, "is missing")])
