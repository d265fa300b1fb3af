"""The command line's end of a tunnel: a WebSocket to the server, with streams on it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from homeport.adapters.tunnel.connection import MuxConnection
from homeport.adapters.tunnel.dial import Door, UpgradeRefused, dial
from homeport.adapters.tunnel.websocket import WebSocketCodec
from homeport.cli.api.client import START_HINT, Client, problem_of, reason_of
from homeport.errors import HomeportError, PeerUnavailable

ELSEWHERE: Final = b"tunnel-elsewhere"
TRIES_MAX: Final = 10
PAUSE_SECONDS: Final = 0.3


@asynccontextmanager
async def open_socket(client: Client, path: str, **query: Any) -> AsyncIterator[MuxConnection]:
    """Raises the server's refusal. Where the site is connected to another replica, tries again: a load balancer leads
    to each in turn."""
    connection = await _connected(client, client.door(path, query))
    try:
        yield connection
    finally:
        await connection.aclose("the command has ended")


async def _connected(client: Client, door: Mapping[str, Any]) -> MuxConnection:
    for attempt in range(TRIES_MAX):
        connection = MuxConnection(peer="the server", is_opener=True, codec=WebSocketCodec(is_client=True))
        try:
            await dial(Door(**door, is_websocket=True), connection)
        except UpgradeRefused as error:
            if ELSEWHERE not in error.body or attempt + 1 == TRIES_MAX:
                raise _refused(client, error) from error
        except (OSError, TimeoutError) as error:
            message = f"Cannot reach Homeport at {client.url} ({reason_of(error)})."
            raise PeerUnavailable(message, hint=START_HINT) from error
        else:
            return connection
        await anyio.sleep(PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _refused(client: Client, error: UpgradeRefused) -> HomeportError:
    if error.status in {0, 101}:
        return PeerUnavailable(f"What answers at {client.url} is not Homeport.", hint=START_HINT)
    return problem_of(error.status, error.body, client.url)
