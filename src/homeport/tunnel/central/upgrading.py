"""Switches a request to a tunnel. Until then it is a request like any other: its row of the table of actions decides,
and a refusal is answered and recorded as everywhere (ADR 0035)."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from starlette.types import Scope

from homeport.adapters.tunnel.connection import Codec, MuxConnection
from homeport.adapters.tunnel.dial import UPGRADE as TUNNEL_PROTOCOL
from homeport.adapters.tunnel.dial import accept_value
from homeport.adapters.tunnel.websocket import WebSocketCodec
from homeport.errors import InvalidInput
from homeport.serving.server.connections import UPGRADE, OnLost
from homeport.serving.server.draining import STOPPING

KEY_LENGTH_MAX: Final = 100
PAGE_PROTOCOL: Final = "homeport.tunnel"
"""What the dashboard offers; beside it, the key of its session."""


@asynccontextmanager
async def tunnel_of_site(scope: Scope, site: str) -> AsyncIterator[MuxConnection]:
    """Central's end: it opens streams."""
    if _header(scope, b"upgrade").lower() != TUNNEL_PROTOCOL:
        raise _not_upgraded(TUNNEL_PROTOCOL)
    made: list[MuxConnection] = []

    def make(on_lost: OnLost) -> MuxConnection:
        made.append(MuxConnection(peer=f"site {site}", is_opener=True, on_lost=on_lost))
        return made[0]

    async with _switched(scope, make, made, {"upgrade": TUNNEL_PROTOCOL}) as connection:
        yield connection


@asynccontextmanager
async def tunnel_of_person(scope: Scope) -> AsyncIterator[MuxConnection]:
    """A WebSocket of a command: its end opens streams."""
    key = _header(scope, b"sec-websocket-key")
    if _header(scope, b"upgrade").lower() != "websocket" or not key or len(key) > KEY_LENGTH_MAX:
        raise _not_upgraded("websocket")
    made: list[MuxConnection] = []
    codec: Codec = WebSocketCodec(is_client=False)

    def make(on_lost: OnLost) -> MuxConnection:
        made.append(MuxConnection(peer="the command", is_opener=False, codec=codec, on_lost=on_lost))
        return made[0]

    headers = {"upgrade": "websocket", "sec-websocket-accept": accept_value(key)}
    # A browser that offers protocols wants one of them chosen.
    if PAGE_PROTOCOL in {each.strip() for each in _header(scope, b"sec-websocket-protocol").split(",")}:
        headers["sec-websocket-protocol"] = PAGE_PROTOCOL
    async with _switched(scope, make, made, headers) as connection:
        yield connection


@asynccontextmanager
async def _switched(
    scope: Scope,
    make: Callable[[OnLost], MuxConnection],
    made: list[MuxConnection],
    headers: dict[str, str],
) -> AsyncIterator[MuxConnection]:
    """Closed when the role stops, and when the caller's authorization ends: that cancels the request."""
    extensions = scope.get("extensions", {})
    if UPGRADE not in extensions:
        raise InvalidInput("This server cannot switch protocols.")
    extensions[UPGRADE](make, headers)
    connection, reason = made[0], "the request was ended"
    try:
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                await extensions[STOPPING].wait()
                connection.close("the server is stopping")

            if STOPPING in extensions:
                tasks.start_soon(stop)
            yield connection
            reason = "it is over"
            tasks.cancel_scope.cancel()
    finally:
        await connection.aclose(reason)


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _not_upgraded(protocol: str) -> InvalidInput:
    return InvalidInput(
        f"This is not a page: it switches to the protocol {protocol}.",
        hint="Use the command line:  homeport exec --help",
    )
