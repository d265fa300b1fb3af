"""Runs a web application on sockets that are already bound, inside the role's own event loop.

The role handles signals and shutdown; the server only serves and stops when asked to, within four seconds even while
streams are open.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import anyio
import uvicorn
from starlette.types import ASGIApp

from homeport.adapters.network.tls_buffers import use_small_tls_buffers
from homeport.adapters.network.tls_records import TlsRecords
from homeport.adapters.system import room_for_connections
from homeport.errors import Refused, system_reason
from homeport.serving.middleware.guards import refuse_open_bind
from homeport.serving.server.connections import (
    HttpConnection,
    OnRefused,
    ProblemOf,
    Prompt,
    Shortcut,
    Verify,
    connection_class,
    own_problem,
)
from homeport.serving.server.draining import Draining, Refuse, Stopping
from homeport.serving.server.limits import Limits
from homeport.serving.server.listening import Admission, Listener

__all__ = ["Drain", "Stopping", "bind", "http_server"]

Drain = Callable[[], Awaitable[None]]
"""Refuses new requests, and returns when those under way are finished or cancelled."""

DRAIN_SECONDS: Final = 2.5
"""The grace period of requests under way. The process ends after five seconds, and the rest has to stop too."""
STOP_SECONDS: Final = 1.5
HANDSHAKE_SECONDS: Final = 10.0
TICK_SECONDS: Final = 1.0
ACCEPTED_AT_ONCE: Final = 16
"""How many connections are accepted in one step of the event loop, before those that are open have their turn. A
handshake with a client's certificate takes about a millisecond: of thousands that come at once, each is finished soon
after it has begun, and who is connected already waits for milliseconds."""
WAITING_MAX: Final = 4096
"""How many connections may wait in the system to be accepted, which allows no more by itself. Who finds no room is
tried again by TCP, after one second, three, seven, and twice as long each time: with few of them a server has nothing
to do in between. They are accepted in their order; who has waited for too long is left out (`Listener`)."""


def bind(host: str, port: int, *, option: str = "--http", is_guarded: bool = False) -> socket.socket:
    """A listening socket. Raises Refused for an address in use, and for one that others can reach unless it has TLS
    and authentication."""
    if not is_guarded:
        refuse_open_bind(host, option=option, port=port)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        created = socket.create_server(address[:2], family=family, backlog=WAITING_MAX)
    except OSError as error:
        raise Refused(
            f"Cannot listen on {host}:{port}: {system_reason(error)}.",
            hint=f"Stop what uses the port, or choose another with  {option} {host}:PORT",
        ) from error
    bound = Listener(fileno=created.detach())
    # Connections inherit it. Without it, the end of a response waits 40 ms for the client's acknowledgement.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.setblocking(False)
    return bound


@contextlib.asynccontextmanager
async def http_server(
    app: ASGIApp,
    sockets: Sequence[socket.socket],
    stopping: Stopping,
    tls: ssl.SSLContext | None = None,
    verify: Verify | None = None,
    *,
    limits: Limits,
    on_refused: OnRefused | None = None,
    prompt: Prompt | None = None,
    shortcut: Shortcut | None = None,
    problem: ProblemOf = own_problem,
    refuse: Refuse | None = None,
) -> AsyncIterator[Drain]:
    """Serves while the body runs. At the end, streams end, requests under way finish, and the rest is cancelled after
    the grace period. A role that must stop something else first calls the yielded drain earlier.

    With `tls` it serves https. `verify` authenticates a client with a certificate, for `scope["extensions"]`. What
    `prompt` has an answer for, or `shortcut` takes, does not reach the application; `refuse` answers what comes while
    the role stops, and `problem` says in what form a connection is refused below the application.
    """
    if tls is not None:
        use_small_tls_buffers()
    admission = Admission(replace(limits, connections_max=min(limits.connections_max, room_for_connections())))
    draining = Draining(app, stopping, refuse)

    async def drain() -> None:
        await draining.drain(DRAIN_SECONDS)

    connections = connection_class(
        limits,
        verify,
        on_refused,
        prompt=prompt and (lambda *request: None if stopping.is_set() else prompt(*request)),
        shortcut=shortcut and draining.counting(shortcut),
        problem=problem,
    )
    server = _Server(_configured(draining, connections, tls), admission)
    done = anyio.Event()

    async def serve() -> None:
        try:
            await server.serve(sockets=list(sockets))
        finally:
            done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await server.listening.wait()
        try:
            yield drain
        finally:
            await drain()
            server.leave()
            with anyio.move_on_after(STOP_SECONDS, shield=True):
                await done.wait()
            tasks.cancel_scope.cancel()


def _configured(app: ASGIApp, connections: type[HttpConnection], tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        loop="none",
        http=connections,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # A header must not decide where a request comes from.
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    config.load()
    config.ssl = tls
    return config


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, admission: Admission) -> None:
        super().__init__(config)
        self._admission = admission
        self.listening = anyio.Event()
        self._leaving = anyio.Event()
        self._woken = anyio.Event()
        """Set by a new connection."""

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()
        self._woken.set()

    async def main_loop(self) -> None:
        """Like uvicorn's own, which wakes ten times a second: once is enough for the Date header, and not at all
        while there are no connections."""
        quiet_seconds = 0.0
        while not await self.on_tick(0):
            quiet_seconds = 0.0 if self.server_state.connections else quiet_seconds + TICK_SECONDS
            if quiet_seconds > (0.0 if self.config.ssl is None else HANDSHAKE_SECONDS):
                self._woken = anyio.Event()
                await self._woken.wait()
                await self.on_tick(0)
                quiet_seconds = 0.0
            with anyio.move_on_after(TICK_SECONDS):
                await self._leaving.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Like uvicorn's own, with a timeout of the handshake and a TLS of ours."""
        loop, config = asyncio.get_running_loop(), self.config

        def connection() -> asyncio.BaseProtocol:
            self._woken.set()
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )
            if config.ssl is None:
                return made
            return TlsRecords(loop, made, config.ssl, None, True, ssl_handshake_timeout=HANDSHAKE_SECONDS)

        self.servers = [
            await loop.create_server(connection, sock=listener, backlog=ACCEPTED_AT_ONCE)
            for listener in sockets or ()
        ]
        for listener in sockets or ():
            if isinstance(listener, Listener):
                listener.has_tls, listener.admission = config.ssl is not None, self._admission
            # asyncio takes one number for how many wait and for how many it accepts at once.
            listener.listen(WAITING_MAX)
        self.started = True
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signal handling to the role."""
        yield
