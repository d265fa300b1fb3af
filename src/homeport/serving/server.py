"""Runs a web application on sockets that are already bound, inside the role's own event loop.

The role owns its signals and its end; the server only serves and stops when told, within three seconds even
while streams are open.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Final

import anyio
import uvicorn
from starlette.types import ASGIApp

from homeport.adapters.system import room_for_connections
from homeport.errors import Refused
from homeport.serving.connections import OnRefused, Verify, connection_class
from homeport.serving.guards import refuse_open_bind
from homeport.serving.limits import Limits

STOP_SECONDS: Final = 3.0
HANDSHAKE_SECONDS: Final = 10.0


class Stopping:
    """Says once that the role is going down, so that open streams end by themselves."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()


def bind(host: str, port: int, *, option: str = "--http", is_guarded: bool = False) -> socket.socket:
    """A listening socket. Raises Refused for a busy address, and for one that others can reach unless TLS and
    tokens guard it."""
    if not is_guarded:
        refuse_open_bind(host, option=option, port=port)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise Refused(
            f"Cannot listen on {host}:{port}: {error.strerror or error}.",
            hint=f"Stop what uses the port, or choose another with  {option} {host}:PORT",
        ) from error
    # Connections inherit it. Without, the end of an answer waits 40 ms for the other side's acknowledgement.
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
) -> AsyncIterator[None]:
    """Serves while the body runs. On leaving, streams are told to end, and what has not ended in time is cut.

    With `tls` it serves https. `verify` says who a client with a certificate is, for `scope["extensions"]`.
    """
    room = min(limits.connections_max, room_for_connections())
    config = uvicorn.Config(
        app,
        loop="none",
        http=connection_class(replace(limits, connections_max=room), verify, on_refused),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # A header must not decide where a request comes from.
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(STOP_SECONDS) - 1,
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
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
            yield
        finally:
            stopping.set()
            server.should_exit = True
            with anyio.move_on_after(STOP_SECONDS, shield=True):
                await done.wait()
            tasks.cancel_scope.cancel()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Like uvicorn's own, with a limit on the handshake."""
        loop, config = asyncio.get_running_loop(), self.config
        limit = None if config.ssl is None else HANDSHAKE_SECONDS

        def connection() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )
            return made

        self.servers = [
            await loop.create_server(
                connection, sock=listener, ssl=config.ssl, ssl_handshake_timeout=limit, backlog=config.backlog
            )
            for listener in sockets or ()
        ]
        self.started = True
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the process's signals to the role."""
        yield
