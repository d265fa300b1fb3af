"""A TCP relay that a test can slow down, cut and count: this kernel has no netem, so delay is made here.

    relay = Relay(host, 5005, ("10.231.7.10", 5005)); relay.start()
    relay.delay_seconds = 0.6           # each way gets half of it
    relay.cut_after_bytes = 4_000_000   # the next connection that has carried so many towards the client is reset
    relay.carried                       # bytes towards the client since it was last set to 0
    relay.cut_every_bytes = 1_000_000   # and so again and again

A cut waits until the client has read what was carried. So `carried` counts what the client was given, and what it
asks for twice shows; how much a machine has under way when a line breaks does not.

It listens on loopback of its host and dials from there, so that pulling the host's cable cuts it off too.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.support.inside import enter
from tests.support.namespaces import Host

CHUNK_BYTES = 65_536
READ_SECONDS_MAX = 10.0
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Relay:
    def __init__(self, host: Host | None, port: int, target: tuple[str, int], *, address: str = "127.0.0.1") -> None:
        """Without a host it stands on this machine's own loopback; `address` is another one of its host."""
        self.address = address
        self.host = host
        self.port = port
        self.target = target
        self.delay_seconds = 0.0
        self.cut_after_bytes: int | None = None
        self.cut_every_bytes: int | None = None
        self.reserved = 0
        self.cuts = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"relay-{port}")
        self._ready = threading.Event()
        self._ending: asyncio.Event | None = None

    def start(self) -> "Relay":
        self._thread.start()
        assert self._ready.wait(10), "the relay did not start"
        return self

    def stop(self) -> None:
        if self._loop is not None and self._ending is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(10)

    def _run(self) -> None:
        if self.host is not None:
            enter(self.host)
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, self.address, self.port)
        self._ready.set()
        await self._ending.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            far_reader, opened = await asyncio.wait_for(asyncio.open_connection(*self.target), 10)
            far = opened
            await _first_of(self._pump(reader, opened), self._pump(far_reader, writer, counts=True))
        except (OSError, TimeoutError):
            pass
        finally:
            for each in (writer, far):
                if each is not None:
                    _reset(each)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool = False
    ) -> None:
        """Reads on while earlier bytes still wait for their time, as a long line does."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

        async def deliver() -> None:
            while True:
                due, chunk = await line.get()
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                if not chunk:
                    writer.write_eof()
                    return
                writer.write(chunk)
                await writer.drain()
                if counts:
                    self.reserved += len(chunk)
                    await self._cut_if_due(writer)

        async def take() -> None:
            while True:
                chunk = await reader.read(CHUNK_BYTES)
                await line.put((asyncio.get_running_loop().time() + self.delay_seconds / 2, chunk))
                if not chunk:
                    return

        await asyncio.gather(take(), deliver())

    async def _cut_if_due(self, writer: asyncio.StreamWriter) -> None:
        if self.cut_after_bytes is None or self.reserved < self.cut_after_bytes:
            return
        again = self.cut_every_bytes
        self.cut_after_bytes = None if again is None else self.reserved + again
        self.cuts += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_SECONDS_MAX):
                while _is_unread(writer):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.001)
        raise ConnectionResetError("cut by the test")


async def _first_of(*ways: Coroutine[Any, Any, None]) -> None:
    """Ends when both ways have ended, or one has failed."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_unread(writer: asyncio.StreamWriter) -> bool:
    """Whether something lies with us, or with the client's kernel: both ends are on this host, which lists them."""
    if writer.transport.get_write_buffer_size():
        return True
    client, relay = writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1]
    for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        ports = tuple(int(end.partition(":")[2], 16) for end in (local, remote))
        waiting = int(queues.partition(":")[2 if ports == (client, relay) else 0], 16)
        if waiting and ports in ((client, relay), (relay, client)):
            return True
    return False


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with a reset, as a middlebox that has lost its table does."""
    with contextlib.suppress(OSError):
        peer = writer.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    writer.transport.abort()
