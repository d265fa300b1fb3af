"""A connection to a Unix socket whose reader may be cancelled at any moment.

anyio's own sets the result of a future when the socket turns readable, also when that future was cancelled in the
same turn of the event loop: the loop then reports a failed callback. Waiting with `wait_readable` has no such moment.
"""

import socket

import anyio
import anyio.abc
import anyio.lowlevel


class UnixStream(anyio.abc.ByteStream):
    def __init__(self, stream: anyio.abc.UNIXSocketStream) -> None:
        self._stream = stream
        self._socket: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError as error:
                raise self._ended() from error
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise self._ended() from error

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
        await self._stream.aclose()

    def _ended(self) -> anyio.ClosedResourceError | anyio.BrokenResourceError:
        return anyio.ClosedResourceError() if self._socket.fileno() < 0 else anyio.BrokenResourceError()
