"""A tunnel between two roles of one process: the two ends of a socket pair, with the same code on them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from homeport.adapters.tunnel.connection import MuxConnection
from homeport.ports import TunnelConnection

Attach = Callable[[TunnelConnection], Callable[[], None]]


@asynccontextmanager
async def open_pair(*, upper: str, lower: str, attach: Attach) -> AsyncIterator[MuxConnection]:
    """Yields the lower role's end, which answers streams; `attach` gets the end that opens them."""
    loop = asyncio.get_running_loop()
    above, below = socket.socketpair()
    opening = MuxConnection(peer=lower, is_opener=True)
    answering = MuxConnection(peer=upper, is_opener=False)
    try:
        await loop.create_connection(lambda: opening, sock=above)
        await loop.create_connection(lambda: answering, sock=below)
        forget = attach(opening)
        try:
            yield answering
        finally:
            forget()
    finally:
        await answering.aclose("it stops")
        await opening.aclose("it stops")
