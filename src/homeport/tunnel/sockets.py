"""A socket as one end of a relay."""

import asyncio
from contextlib import suppress
from typing import Final

import anyio

from homeport.core.tunnel.frames import DATA_BYTES_MAX
from homeport.core.tunnel.targets import Endpoint
from homeport.errors import PeerUnavailable, system_reason
from homeport.ports import IncomingStream, TunnelHeader
from homeport.tunnel.relaying import relay

CONNECT_SECONDS_MAX: Final = 10.0
CLOSE_SECONDS_MAX: Final = 1.0


class SocketStream:
    """`ports.TunnelStream`. `name` is what the other end of the socket is called in messages."""

    accepted: TunnelHeader = {}  # noqa: RUF012 - never changed

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader = reader
        self._writer = writer
        self._name = name

    async def read(self, size_max: int = DATA_BYTES_MAX) -> bytes:
        try:
            return await self._reader.read(size_max)
        except OSError as error:
            raise PeerUnavailable(f"{self._name} closed the connection.") from error

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise PeerUnavailable(f"{self._name} closed the connection.") from error

    async def end(self) -> None:
        with suppress(OSError):
            if self._writer.can_write_eof():
                self._writer.write_eof()


async def connect_and_relay(stream: IncomingStream, endpoint: Endpoint, said: TunnelHeader) -> None:
    """Connects, accepts the stream with `said`, and relays. Raises PeerUnavailable where nothing listens there."""
    try:
        with anyio.fail_after(CONNECT_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except (OSError, TimeoutError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else system_reason(error)
        raise PeerUnavailable(f"Nothing answers at {endpoint}: {why}.") from error
    try:
        await stream.accept(said)
        await relay(stream, SocketStream(reader, writer, str(endpoint)))
        writer.close()
    finally:
        if not writer.is_closing():
            writer.transport.abort()
        with anyio.move_on_after(CLOSE_SECONDS_MAX, shield=True), suppress(OSError):
            await writer.wait_closed()
