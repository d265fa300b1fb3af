"""Servers of tests that outlive their clients: one that gives up ends its own connection, not the test."""

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import SocketStream

Handler = Callable[[SocketStream], Awaitable[None]]

LEFT = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


def outliving(handler: Handler) -> Handler:
    async def serve(connection: SocketStream) -> None:
        try:
            async with connection:
                await handler(connection)
        except* LEFT:
            pass

    return serve
