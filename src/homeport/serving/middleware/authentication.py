"""Authenticates the caller before any route is reached, and ends open requests when the authorization ends.

A token that is presented is always checked, also one in the session of a browser (`session_cookie`). A machine is
authenticated by its certificate, which the connection has verified; headers that claim one are never read. A local
user is authenticated by a key that only the user who started the role can read, never by an address. In any case,
`scope["state"]["caller"]` has the caller, for the audit of refused attempts too.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.adapters.local_access import KeyKind, LocalKeys
from homeport.core.access.actions import ActionTable, Audit, Level
from homeport.core.access.throttle import Throttle, address_key
from homeport.core.identity.joining import API_PREFIX, JOIN_PREFIX
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.identity import Peer
from homeport.core.values.addresses import is_loopback
from homeport.errors import HomeportError, NotAuthorized, TooManyAttempts, Unauthenticated
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.tokens import Tokens, WrongToken
from homeport.ports import Clock
from homeport.serving.middleware import session_cookie
from homeport.serving.middleware.authorization import TOKEN_HINT, look_up, unauthenticated
from homeport.serving.middleware.guards import headers_of
from homeport.serving.problems import MalformedRequest, problem_of, problem_response
from homeport.serving.server.connections import ABORT, PEER
from homeport.serving.server.draining import REQUEST, RequestUnderWay
from homeport.vocabulary import SiteName

REVOKED: Final = "revoked"
"""Why a request ends: its caller is no longer authorized."""
_TOKEN_NAMES: Final = frozenset({"token", "access_token", "api_key", "apikey", "api-key", "x-api-key"})
_TOKEN_TEXT: Final = re.compile(
    rf"\b(?:(?:{API_PREFIX}|{JOIN_PREFIX})_[0-9a-f]{{8,32}}_[0-9a-f]{{16,}}|hp[lm]_[0-9a-f]{{16,}})"
)

OPEN_MAX: Final = 1_050
"""How many requests, event streams above all, one token, one machine or the local user may have open at once: a
thousand followers, and room for further requests."""

CUT_SECONDS: Final = 1.0
"""How long a client may take to read the end of a response that was cut."""

_SERVED: Final[ContextVar[RequestUnderWay]] = ContextVar("served")
"""The request that is being served in this context."""


class Authenticator:
    """Access control of one role."""

    def __init__(
        self,
        tokens: Tokens,
        policy: AcceptedClients,
        clock: Clock,
        *,
        local: LocalKeys | None = None,
        throttle: Throttle | None = None,
        on_unknown_peer: Callable[[Peer], None] = lambda peer: None,
    ) -> None:
        """`on_unknown_peer` is called for a machine with a valid certificate that is not on the list."""
        self.tokens = tokens
        self._policy = policy
        self._clock = clock
        self._local = local
        self._throttle = throttle or Throttle()
        self._on_unknown_peer = on_unknown_peer
        self._open: dict[str, set[RequestUnderWay]] = {}
        self._opened = anyio.Event()

    async def authenticate(self, headers: Mapping[str, str], address: str, peer: Peer | None) -> Caller:
        """Raises Unauthenticated for a wrong token, NotAuthorized for a machine that is not accepted. An
        unauthenticated caller is returned as anonymous."""
        text = _presented(headers)
        if text is None:
            text = session_cookie.token_of(headers, self._clock.now())
        if text is not None:
            return await self._holder(text, address)
        if peer is not None:
            return self._machine(peer, address)
        return anonymous(address)

    def recognize(self, headers: Mapping[str, str], address: str) -> Caller | None:
        """A caller who was authenticated a moment ago, or has a local key; None where it takes more to decide."""
        text = _presented(headers)
        if not text:
            return None
        return self._local_holder(text, address) or self.tokens.recognize(text, address=address)

    def _local_holder(self, text: str, address: str) -> Caller | None:
        kind = self._local.kind_of(text) if self._local is not None and is_loopback(address) else None
        return None if kind is None else local_caller(kind, address)

    async def _holder(self, text: str, address: str) -> Caller:
        local = self._local_holder(text, address)
        if local is not None:
            return local
        try:
            return await self.tokens.check(text, address=address)
        except WrongToken as wrong:
            now = self._clock.monotonic()
            seconds = self._throttle.failed(address_key(address), now)
            if wrong.token_id and not wrong.name:
                # The secret of one token is being guessed, perhaps from many addresses.
                seconds = max(seconds, self._throttle.failed(f"token:{wrong.token_id}", now))
            if seconds > 0:
                raise TooManyAttempts(
                    "Too many wrong access tokens.",
                    retry_after_seconds=seconds,
                    hint="Wait as long as Retry-After says. A valid token still works.",
                ) from wrong
            raise

    def _machine(self, peer: Peer, address: str) -> Caller:
        if self._policy.refusal(peer) is not None:
            self._on_unknown_peer(peer)
            raise NotAuthorized(
                f"{peer.spiffe_id} is not accepted here.",
                target=peer.name,
                hint="An administrator decides:  homeport identity list",
            )
        return machine(peer, address)

    async def until_open(self) -> None:
        """Returns when a caller whose authorization can end has an open request."""
        while not any(self._open):
            self._opened = anyio.Event()
            await self._opened.wait()

    async def sweep(self) -> None:
        """Ends the open requests of callers that are no longer authorized."""
        for key in [key for key in self._open if key]:
            good = self._policy.accepts(key) if key.startswith("spiffe://") else await self.tokens.is_good(key)
            if not good:
                self.end(key)

    def end(self, key: str) -> None:
        """Ends every open request of a token (by its id) or a machine (by its SPIFFE ID), at once. Only the current
        request still gets its response: a user who revokes their own token learns that it succeeded."""
        asking = _SERVED.get(None)
        for request in tuple(self._open.get(key, ())):
            if request is not asking:
                request.end(REVOKED)

    @contextmanager
    def track_request(self, caller: Caller) -> Iterator[anyio.CancelScope]:
        """The same for what is not served over HTTP, in a scope of its own."""
        with anyio.CancelScope() as scope, self.tracked(caller, RequestUnderWay(scope)):
            yield scope

    def tracked(self, caller: Caller, request: RequestUnderWay) -> "_Tracked":
        """Tracks a request of the caller while it is served. Raises TooManyAttempts beyond `OPEN_MAX`."""
        mine = self._open.get(caller.key, ())
        if len(mine) >= OPEN_MAX and caller.kind is not CallerKind.ANONYMOUS:
            raise TooManyAttempts(
                f"{caller.name} has {OPEN_MAX} requests open already.",
                retry_after_seconds=1.0,
                hint="Close event streams that are not being read.",
            )
        if caller.key:
            self._opened.set()
        return _Tracked(self._open, caller, request)


class _Tracked:
    """One open request. Every request enters one, so that it is a class and not a generator."""

    __slots__ = ("_key", "_open", "_request", "_served")

    def __init__(
        self, open_requests: dict[str, set[RequestUnderWay]], caller: Caller, request: RequestUnderWay
    ) -> None:
        self._open = open_requests
        self._key = None if caller.kind is CallerKind.ANONYMOUS else caller.key
        self._request = request

    def __enter__(self) -> None:
        if self._key is not None:
            self._open.setdefault(self._key, set()).add(self._request)
            self._served = _SERVED.set(self._request)

    def __exit__(self, *error: object) -> None:
        if self._key is not None:
            _SERVED.reset(self._served)
            mine = self._open[self._key]
            mine.discard(self._request)
            if not mine:
                del self._open[self._key]


class Authentication:
    """The authentication middleware."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, table: ActionTable) -> None:
        self._app = app
        self._authenticator = authenticator
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        address = str(scope["client"][0]) if scope.get("client") else ""
        state["caller"] = anonymous(address)
        try:
            caller = await self._caller(scope, address)
        except HomeportError as error:
            if isinstance(error, WrongToken) and error.name:
                state["caller"] = replace(anonymous(address), name=error.name)
            state["problem"] = error.code
            problem = problem_of(error).model_copy(update={"instance": scope["path"]})
            await problem_response(problem)(scope, receive, send)
            return
        state["caller"] = caller
        await self._serve(caller, scope, receive, send)

    async def _caller(self, scope: Scope, address: str) -> Caller:
        _refuse_token_in_url(scope)
        headers = headers_of(scope)
        peer = scope.get("extensions", {}).get(PEER)
        try:
            caller = await self._authenticator.authenticate(headers, address, peer)
        except NotAuthorized:
            # A removed machine may still request what is open to every client.
            if not self._is_open(scope):
                raise
            return anonymous(address)
        if caller.kind is CallerKind.ANONYMOUS and not self._is_open(scope):
            raise unauthenticated(caller)
        return caller

    def _is_open(self, scope: Scope) -> bool:
        found = look_up(scope, self._table)
        return found is not None and found.action.least is Level.OPEN

    async def _serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        found = look_up(scope, self._table)
        is_recorded = found is None or found.action.audit is not Audit.NONE
        response = _Response(send, can_end=bool(caller.key), is_recorded=is_recorded)
        request: RequestUnderWay = scope["extensions"][REQUEST]
        try:
            with self._authenticator.tracked(caller, request):
                await self._app(scope, receive, response)
        except TooManyAttempts as error:
            await problem_response(problem_of(error))(scope, receive, send)
        except anyio.get_cancelled_exc_class():
            if request.reason == REVOKED and not response.is_complete:
                with anyio.CancelScope(shield=True):
                    await _cut(response, scope, receive, send)
            raise


class _Response:
    """Forwards a response, and knows how far it has come. It can be cut between the parts of its body, and while a
    client is slow to read them; its head with the first part, where its entry of the audit trail is written, and its
    end are sent as a whole. What leaves no entry is not shielded, which costs more than most that is done for it."""

    __slots__ = ("_can_end", "_has_body", "_is_recorded", "_send", "has_length", "is_complete", "is_started")

    def __init__(self, send: Send, *, can_end: bool, is_recorded: bool = True) -> None:
        self._send = send
        self._can_end = can_end
        self._is_recorded = is_recorded
        self._has_body = False
        self.is_started = False
        self.has_length = False
        self.is_complete = False

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        is_body, has_more = kind == "http.response.body", bool(message.get("more_body"))
        if kind == "http.response.start":
            self.is_started = True
            self.has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            self._is_recorded |= message["status"] >= 300  # refusals are recorded, whatever was asked for
        if not (self._can_end and self._is_recorded) or (has_more and self._has_body):
            await self._send(message)
        else:
            with anyio.CancelScope(shield=True):
                await self._send(message)
        self._has_body = self._has_body or is_body
        self.is_complete = is_body and not has_more


async def _cut(response: _Response, scope: Scope, receive: Receive, send: Send) -> None:
    """The caller's authorization ended during the response."""
    if not response.is_started:
        error = Unauthenticated("The access token was revoked.", hint=TOKEN_HINT)
        await problem_response(problem_of(error))(scope, receive, send)
        return
    abort = scope.get("extensions", {}).get(ABORT)
    with anyio.move_on_after(CUT_SECONDS) as waiting:
        if not response.has_length:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
    # The client was promised more, or it does not read: only the end of the connection is left.
    if abort is not None and (response.has_length or waiting.cancelled_caught):
        abort()
        while (await receive())["type"] != "http.disconnect":
            pass


@lru_cache(maxsize=1024)
def anonymous(address: str) -> Caller:
    return Caller("anonymous", Role.VIEWER, address, kind=CallerKind.ANONYMOUS)


@lru_cache(maxsize=16)
def local_caller(kind: KeyKind, address: str) -> Caller:
    """A caller that can read the role's files: the user who started it, or a site without an identity of its own,
    which is trusted for any site it names."""
    if kind is KeyKind.PERSON:
        return Caller("local", Role.ADMIN, address)
    return Caller("local", Role.VIEWER, address, kind=CallerKind.MACHINE)


def machine(peer: Peer, address: str) -> Caller:
    """A machine acts for its own site alone; a client that is not a site uses its own name as one."""
    site = peer.site or SiteName(peer.name)
    return Caller(peer.name, Role.VIEWER, address, (site,), CallerKind.MACHINE, peer.spiffe_id)


def _presented(headers: Mapping[str, str]) -> str | None:
    """The token of a request. Any credentials count as presented, so that a wrong kind is not treated as none."""
    given = headers.get("authorization")
    if given is not None:
        scheme, _, text = given.strip().partition(" ")
        return text.strip() if scheme.lower() == "bearer" else ""
    return headers.get("x-api-key")


def _refuse_token_in_url(scope: Scope) -> None:
    """URLs end up in logs and histories, so such a token should be revoked."""
    raw = scope.get("query_string", b"")
    in_path = "_" in scope["path"] and _TOKEN_TEXT.search(scope["path"])
    if not raw and not in_path:
        return
    given = parse_qsl(raw.decode("latin-1"), keep_blank_values=True)
    if in_path:
        # Nothing after this, the audit trail above all, may contain it.
        scope["path"] = _TOKEN_TEXT.sub("…", scope["path"])
        scope["raw_path"] = scope["path"].encode()
    if in_path or any(name.lower() in _TOKEN_NAMES or _TOKEN_TEXT.search(value) for name, value in given):
        error = MalformedRequest(
            "An access token does not belong in a URL, where logs and histories keep it.",
            hint="Revoke that token, and send the new one as  Authorization: Bearer hp_… .",
        )
        error.code = "token-in-url"
        raise error
