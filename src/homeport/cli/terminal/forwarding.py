"""Listens on this machine, and passes each connection on to a port of a deployment."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import anyio
import click

from homeport.adapters.tunnel.connection import MuxConnection
from homeport.cli.api.client import Client
from homeport.cli.api.socket import open_socket
from homeport.core.tunnel.targets import PORT_MAX
from homeport.errors import HomeportError, PeerUnavailable, Refused, TransientError, system_reason
from homeport.fleet.shared.backoff import Backoff
from homeport.lazy_dataclass import dataclass
from homeport.tunnel.relaying import relay
from homeport.tunnel.sockets import SocketStream

_FORWARD: Final = re.compile(r"(?:(?P<local>[0-9]{0,5}):)?(?P<port>[0-9]{1,5})")
STEADY_SECONDS: Final = 5.0
WAIT_SECONDS_MAX: Final = 10.0
"""How long a new connection waits for a tunnel that is being opened again."""


@dataclass(frozen=True, slots=True)
class Forward:
    local: int
    """0: any free one."""
    port: int


def parse_forward(text: str) -> Forward:
    """`8080:80`, `80` or `:80`."""
    found = _FORWARD.fullmatch(text)
    port = int(found["port"]) if found else 0
    local = port if found is None or found["local"] is None else int(found["local"] or 0)
    if not 0 < port <= PORT_MAX or local > PORT_MAX:
        raise click.BadParameter(f'"{text}" is not a port: write 8080:80, or 80 for the same here.')
    return Forward(local, port)


class _Forwarding:
    """The tunnel of now, for the listeners, which outlive it."""

    def __init__(self) -> None:
        self._connection: MuxConnection | None = None
        self._has_changed = anyio.Event()

    def use(self, connection: MuxConnection | None) -> None:
        self._connection = connection
        self._has_changed.set()
        self._has_changed = anyio.Event()

    async def connection(self) -> MuxConnection:
        with anyio.move_on_after(WAIT_SECONDS_MAX):
            while self._connection is None:
                await self._has_changed.wait()
        if self._connection is None:
            raise PeerUnavailable("The tunnel is down.")
        return self._connection


async def forward(
    client: Client, path: str, query: Mapping[str, Any], wanted: Sequence[Forward], address: str
) -> None:
    """Until cancelled. Raises what will not change by itself, and any failure of the first attempt."""
    forwarding, is_first, backoff = _Forwarding(), True, Backoff()
    ports = [each.port for each in wanted]
    async with AsyncExitStack() as stack:
        while True:
            began = anyio.current_time()
            try:
                async with open_socket(client, path, port=ports, **query) as connection:
                    forwarding.use(connection)
                    if is_first:
                        for each in wanted:
                            await stack.enter_async_context(_listening(forwarding, each, address))
                        click.echo("  Ctrl-C ends it.")
                    else:
                        click.echo("  Connected again.", err=True)
                    is_first = False
                    why = await connection.closed()
            except TransientError as error:
                if is_first:
                    raise
                why = str(error)
            forwarding.use(None)
            if anyio.current_time() - began >= STEADY_SECONDS:
                backoff.reset()
            seconds = backoff.next_seconds()
            if backoff.failures == 1:
                click.echo(f"  The tunnel was lost ({why.rstrip('.')}); trying again.", err=True)
            await anyio.sleep(seconds)


@asynccontextmanager
async def _listening(forwarding: _Forwarding, wanted: Forward, address: str) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await forwarding.connection()
            async with connection.open({"kind": "forward", "port": wanted.port}) as stream:
                await relay(stream, SocketStream(reader, writer, "the local program"))
        except HomeportError as error:
            click.echo(f"  A connection to port {wanted.port} failed: {error}", err=True)
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    try:
        server = await asyncio.start_server(serve, address, wanted.local)
    except OSError as error:
        raise Refused(
            f"Cannot listen on {address}:{wanted.local}: {system_reason(error)}.",
            hint=f"Choose another port here, for example  0:{wanted.port}  for any free one.",
        ) from error
    async with server:
        port = server.sockets[0].getsockname()[1]
        click.echo(f"✓ {address}:{port} leads to port {wanted.port}")
        yield
