"""Finds out who asks, before any route is reached, and ends what is under way when they may no longer.

A token that is presented is always checked. A machine is known by its certificate, which the connection has
verified; headers that claim one are never read. Without either, being on this machine is enough where that is
allowed. Whatever the outcome, `scope["state"]["caller"]` says who it was, for the record of refused attempts too.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.core.access.throttle import Throttle, address_key
from homeport.core.addresses import is_loopback
from homeport.core.identity.admission import fits
from homeport.core.identity.joining import API_PREFIX, JOIN_PREFIX
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.identity import Peer, Standing
from homeport.errors import HomeportError, NotAuthorized, TooManyAttempts, Unauthenticated
from homeport.fleet.tokens import Tokens, WrongToken
from homeport.ports import Clock, Store
from homeport.serving.callers import TOKEN_HINT
from homeport.serving.connections import PEER
from homeport.serving.guards import split_host
from homeport.serving.problems import MalformedRequest, problem_of, problem_response
from homeport.vocabulary import SiteName

_TOKEN_NAMES: Final = frozenset({"token", "access_token", "api_key", "apikey", "api-key", "x-api-key"})
_TOKEN_TEXT: Final = re.compile(rf"\b(?:{API_PREFIX}|{JOIN_PREFIX})_[0-9a-f]{{8,32}}_[0-9a-f]{{16,}}")
_PROXIED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")

_SERVED: Final[ContextVar[anyio.CancelScope]] = ContextVar("served")
"""The request that is being answered here."""

OpenRoute = tuple[frozenset[str], re.Pattern[str]]


class Gate:
    """Who may come in, for one role."""

    def __init__(
        self,
        tokens: Tokens,
        store: Store,
        clock: Clock,
        *,
        open_loopback: bool = True,
        throttle: Throttle | None = None,
        on_stranger: Callable[[Peer], None] = lambda peer: None,
    ) -> None:
        """`on_stranger` hears of a certified machine that is not on the list."""
        self.tokens = tokens
        self._store = store
        self._clock = clock
        self._open_loopback = open_loopback
        self._throttle = throttle or Throttle()
        self._on_stranger = on_stranger
        self._open: dict[str, set[anyio.CancelScope]] = {}

    async def who(self, headers: Mapping[str, str], address: str, peer: Peer | None) -> Caller:
        """Raises Unauthenticated for a wrong token, NotAuthorized for a machine that is not accepted. Somebody
        unknown comes back as anonymous."""
        text = _presented(headers)
        if text is not None:
            return await self._holder(text, address)
        if peer is not None:
            return await self._machine(peer, address)
        if self._open_loopback and is_loopback(address) and _is_direct(headers):
            return Caller("local", Role.ADMIN, address)
        return anonymous(address)

    async def _holder(self, text: str, address: str) -> Caller:
        try:
            return await self.tokens.check(text, address=address)
        except WrongToken as wrong:
            now = self._clock.monotonic()
            seconds = self._throttle.failed(address_key(address), now)
            if wrong.token_id and not wrong.name:
                # Somebody guesses the secret of one token, perhaps from many addresses.
                seconds = max(seconds, self._throttle.failed(f"token:{wrong.token_id}", now))
            if seconds > 0:
                raise TooManyAttempts(
                    "Too many wrong access tokens.",
                    retry_after_seconds=seconds,
                    hint="Wait as long as Retry-After says. A valid token is answered all the same.",
                ) from wrong
            raise

    async def _machine(self, peer: Peer, address: str) -> Caller:
        async with self._store.read() as reader:
            record = await reader.identity(peer.spiffe_id)
        is_member = record is not None and record.standing is Standing.ACCEPTED
        # A name that was removed and joined anew has another key; the certificate of the old one may still be valid.
        if not is_member or record is None or not fits(record.spki, peer.chain[0].spki):
            self._on_stranger(peer)
            raise NotAuthorized(
                f"{peer.spiffe_id} is not accepted here.",
                target=peer.name,
                hint="An administrator decides:  homeport identity list",
            )
        return machine(peer, address)

    async def sweep(self) -> None:
        """Ends the open requests of those who were let in and no longer would be."""
        for key in list(self._open):
            good = await (self._is_accepted(key) if key.startswith("spiffe://") else self.tokens.is_good(key))
            if not good:
                self.end(key)

    def end(self, key: str) -> None:
        """Ends every open request of a token (by its id) or a machine (by its SPIFFE ID), at once. Only the one
        that asks for this is still answered: whoever revokes their own token learns that it is done."""
        asking = _SERVED.get(None)
        for scope in self._open.get(key, ()):
            if scope is not asking:
                scope.cancel()

    @contextmanager
    def held(self, caller: Caller) -> Iterator[anyio.CancelScope]:
        """Remembers a request of the caller while it is served."""
        with anyio.CancelScope() as scope:
            if not caller.key:
                yield scope
                return
            self._open.setdefault(caller.key, set()).add(scope)
            served = _SERVED.set(scope)
            try:
                yield scope
            finally:
                _SERVED.reset(served)
                mine = self._open[caller.key]
                mine.discard(scope)
                if not mine:
                    del self._open[caller.key]

    async def _is_accepted(self, spiffe_id: str) -> bool:
        async with self._store.read() as reader:
            record = await reader.identity(spiffe_id)
        return record is not None and record.standing is Standing.ACCEPTED


class Authentication:
    """The middleware that asks the gate."""

    def __init__(self, app: ASGIApp, gate: Gate, open_routes: Sequence[OpenRoute] = ()) -> None:
        self._app = app
        self._gate = gate
        self._open_routes = open_routes

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
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        peer = scope.get("extensions", {}).get(PEER)
        try:
            caller = await self._gate.who(headers, address, peer)
        except NotAuthorized:
            # A machine that was removed may still ask for what anybody may.
            if not self._is_open(scope):
                raise
            return anonymous(address)
        if caller.kind is CallerKind.ANONYMOUS and not self._is_open(scope):
            raise Unauthenticated("This needs an access token.", hint=TOKEN_HINT)
        return caller

    def _is_open(self, scope: Scope) -> bool:
        return any(scope["method"] in methods and path.match(scope["path"]) for methods, path in self._open_routes)

    async def _serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        with self._gate.held(caller) as held:
            await self._app(scope, receive, noting)
        if held.cancelled_caught:
            await _cut(started, scope, receive, send)


async def _cut(started: bool, scope: Scope, receive: Receive, send: Send) -> None:
    """The caller's permission ended while it was being answered."""
    if started:
        with anyio.move_on_after(1):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    error = Unauthenticated("The access token was revoked.", hint=TOKEN_HINT)
    await problem_response(problem_of(error))(scope, receive, send)


def anonymous(address: str) -> Caller:
    return Caller("anonymous", Role.VIEWER, address, kind=CallerKind.ANONYMOUS)


def machine(peer: Peer, address: str) -> Caller:
    """A machine acts for its own site alone; a client that is no site has its own name for one."""
    site = peer.site or SiteName(peer.name)
    return Caller(peer.name, Role.VIEWER, address, (site,), CallerKind.MACHINE, peer.spiffe_id)


def _presented(headers: Mapping[str, str]) -> str | None:
    """The token of a request. Any credentials count as presented, so that a wrong kind is not taken for none."""
    given = headers.get("authorization")
    if given is not None:
        scheme, _, text = given.strip().partition(" ")
        return text.strip() if scheme.lower() == "bearer" else ""
    return headers.get("x-api-key")


def _is_direct(headers: Mapping[str, str]) -> bool:
    """A proxy on this machine passes on what strangers ask: that does not make them local."""
    name, _ = split_host(headers.get("host", ""))
    return is_loopback(name) and not any(header in headers for header in _PROXIED)


def _refuse_token_in_url(scope: Scope) -> None:
    """What stands in a URL ends up in logs and histories, so such a token should be thrown away."""
    raw = scope.get("query_string", b"")
    in_path = "_" in scope["path"] and _TOKEN_TEXT.search(scope["path"])
    if not raw and not in_path:
        return
    given = parse_qsl(raw.decode("latin-1"), keep_blank_values=True)
    if in_path:
        # Nothing that comes after, the audit trail above all, may repeat it.
        scope["path"] = _TOKEN_TEXT.sub("…", scope["path"])
        scope["raw_path"] = scope["path"].encode()
    if in_path or any(name.lower() in _TOKEN_NAMES or _TOKEN_TEXT.search(value) for name, value in given):
        error = MalformedRequest(
            "An access token does not belong in a URL, where logs and histories keep it.",
            hint="Revoke that token, and send the new one as  Authorization: Bearer hp_… .",
        )
        error.code = "token-in-url"
        raise error
