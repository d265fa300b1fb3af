"""What the tunnel costs beside a direct connection: throughput one way, and the time of a small exchange.

Both ends are processes of their own on loopback, without TLS, as the direct one is. `two hops` is what a node's
port costs central: central to site, and site to node.
"""

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from homeport.adapters.tunnel.connection import MuxConnection
from homeport.adapters.tunnel.websocket import WebSocketCodec
from homeport.core.tunnel.targets import Endpoint
from homeport.ports import IncomingStream, TunnelStream
from homeport.tunnel.relaying import relay
from homeport.tunnel.sockets import SocketStream, connect_and_relay

BYTES: Final = 64 * 2**20
EXCHANGES: Final = 1_000
SMALL: Final = bytes(120)
LARGE: Final = bytes(64 * 1024)


def measured() -> dict[str, tuple[float, float]]:
    """MB/s and median microseconds of one exchange, by path."""
    paths = {"direct": (0, False), "one hop": (1, False), "two hops": (2, False), "one hop, WebSocket": (1, True)}
    return {name: asyncio.run(_measure(hops, is_websocket=websocket)) for name, (hops, websocket) in paths.items()}


async def _measure(hops: int, *, is_websocket: bool) -> tuple[float, float]:
    """Each hop is a process that connects to the one before it, as sites and nodes do."""
    context = multiprocessing.get_context("spawn")
    processes: list[Any] = []
    try:
        async with AsyncExitStack() as stack:
            target = _started(context, processes, _serve_target)
            first: asyncio.Future[MuxConnection] = asyncio.get_running_loop().create_future()
            if hops:
                port = await _accept_tunnel(stack, first, is_websocket=is_websocket)
                _started(context, processes, _serve_hop, port, target, hops - 1, is_websocket)
                connection = await asyncio.wait_for(first, 30)

                async def ready() -> None:
                    await asyncio.sleep(0.5 if hops > 1 else 0)

                await ready()
                return await _run(lambda work: _through(connection, work))
            return await _run(lambda work: _direct(target, work))
    finally:
        for process in processes:
            process.kill()
            process.join()


async def _run(over: Callable[[Callable[[TunnelStream], Awaitable[float]]], Awaitable[float]]) -> tuple[float, float]:
    return await over(_push), await over(_exchange)


async def _push(stream: TunnelStream) -> float:
    began = time.perf_counter()
    await stream.write(b"P")
    for _ in range(BYTES // len(LARGE)):
        await stream.write(LARGE)
    await stream.end()
    assert await stream.read() == b"!"
    return BYTES / 2**20 / (time.perf_counter() - began)


async def _exchange(stream: TunnelStream) -> float:
    await stream.write(b"E")
    times = []
    for _ in range(EXCHANGES):
        began = time.perf_counter()
        await stream.write(SMALL)
        left = len(SMALL)
        while left:
            left -= len(await stream.read())
        times.append(time.perf_counter() - began)
    await stream.end()
    return statistics.median(times) * 1e6


async def _direct(port: int, work: Callable[[TunnelStream], Awaitable[float]]) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await work(SocketStream(reader, writer, "the server"))
    finally:
        writer.close()


async def _through(connection: MuxConnection, work: Callable[[TunnelStream], Awaitable[float]]) -> float:
    async with connection.open({"kind": "endpoint"}) as stream:
        return await work(stream)


async def _accept_tunnel(
    stack: AsyncExitStack, arrived: "asyncio.Future[MuxConnection]", *, is_websocket: bool
) -> int:
    def accept() -> MuxConnection:
        codec = WebSocketCodec(is_client=False) if is_websocket else None
        connection = MuxConnection(peer="below", is_opener=True, codec=codec)
        if not arrived.done():
            arrived.set_result(connection)
        return connection

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    stack.callback(server.close)
    port: int = server.sockets[0].getsockname()[1]
    return port


def _started(context: Any, processes: list[Any], serve: Callable[..., None], *arguments: Any) -> int:
    ours, theirs = context.Pipe()
    processes.append(context.Process(target=serve, args=(theirs, *arguments), daemon=False))
    processes[-1].start()
    return int(ours.recv())


def _serve_target(pipe: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = await reader.readexactly(1)
        with suppress(OSError):
            while data := await reader.read(256 * 1024):
                if kind == b"E":
                    writer.write(data)
                    await writer.drain()
            writer.write(b"!" if kind == b"P" else b"")
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def _serve_hop(pipe: Any, above: int, target: int, further: int, is_websocket: bool) -> None:
    async def main() -> None:
        below: asyncio.Future[MuxConnection] = asyncio.get_running_loop().create_future()
        processes: list[Any] = []

        async def answer(stream: IncomingStream) -> None:
            if not further:
                await connect_and_relay(stream, Endpoint("127.0.0.1", target), {})
                return
            async with (await below).open({"kind": "endpoint"}) as onwards:
                await stream.accept({})
                await relay(stream, onwards)

        async with AsyncExitStack() as stack:
            if further:
                port = await _accept_tunnel(stack, below, is_websocket=False)
                context = multiprocessing.get_context("spawn")
                _started(context, processes, _serve_hop, port, target, further - 1, False)
            codec = WebSocketCodec(is_client=True) if is_websocket else None
            connection = MuxConnection(peer="above", is_opener=False, codec=codec)
            await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", above)
            pipe.send(0)
            await connection.serve(answer)
        for process in processes:
            process.kill()

    asyncio.run(main())
