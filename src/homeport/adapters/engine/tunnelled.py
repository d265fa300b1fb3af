"""HTTP connections that are streams of a tunnel, for engines of other machines.

Each is a socket pair: the HTTP client has one end, and a task carries bytes between the other end and the stream.
When the client closes its end, the stream is closed at once, which cancels the request at the engine; when the stream
ends or breaks, so does the connection.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any

import aiohttp
import anyio
from aiohttp.client_proto import ResponseHandler

from homeport.errors import HomeportError
from homeport.ports import OpenStream, TunnelStream


class TunnelConnector(aiohttp.BaseConnector):
    def __init__(self, opens: OpenStream, **options: Any) -> None:
        super().__init__(**options)
        self._opens = opens
        self._carried: set[asyncio.Task[None]] = set()
        """Held here, since a connection outlives the request that opened it. Each ends with its connection."""

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        """Raises what opening the stream raises."""
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[socket.socket] = loop.create_future()
        task = loop.create_task(self._carry(opened))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)
        try:
            with anyio.fail_after(timeout.sock_connect):
                ours = await opened
                is_tls = req.url.scheme == "https"
                context = await loop.run_in_executor(None, ssl.create_default_context) if is_tls else None
                name = req.url.host if is_tls else None
                _, protocol = await loop.create_connection(
                    self._factory, sock=ours, ssl=context, server_hostname=name
                )
        except BaseException:
            task.cancel()
            raise
        return protocol

    async def _carry(self, opened: "asyncio.Future[socket.socket]") -> None:
        """Until one of both ends closes."""
        try:
            async with self._opens() as stream:
                ours, theirs = socket.socketpair()
                reader, writer = await asyncio.open_connection(sock=theirs)
                if opened.cancelled():
                    ours.close()
                else:
                    opened.set_result(ours)
                try:
                    await _relay(reader, writer, stream)
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (HomeportError, OSError) as error:
            if not opened.done():
                opened.set_exception(error)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: TunnelStream) -> None:
    async with anyio.create_task_group() as tasks:

        async def send() -> None:
            with suppress(HomeportError, OSError):
                while data := await reader.read(65536):
                    await stream.write(data)
            tasks.cancel_scope.cancel()

        tasks.start_soon(send)
        with suppress(HomeportError, OSError):
            while data := await stream.read():
                writer.write(data)
                await writer.drain()
        tasks.cancel_scope.cancel()
