"""A site that does what a test tells it, and speaks the real protocol over a real socket."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import grpc.aio

from homeport.core.model.order import Order, Progress, Result
from homeport.core.model.protocol import OWN
from homeport.ports import Acknowledged, Beat, Farewell, Found, Hello, News, Notice, ToNode, Welcome
from homeport.vocabulary import NodeId, SiteName
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb
from tests.support.stubs import nodes_pb2_grpc as pb_grpc


class ScriptedSite(pb_grpc.NodesServicer):
    def __init__(self, *, heartbeat_seconds: float = 5.0) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        self.protocol = OWN
        self.acknowledges = True
        self.hangs_up = False
        """Whether it ends each stream right after its welcome."""
        self.notices: list[Notice] = []
        self.found: list[Found] = []
        self.hellos: list[Hello] = []
        self.news: list[News] = []
        self.beats = 0
        self.gone: list[NodeId] = []
        self._contexts: list[Any] = []
        self._writing = anyio.Lock()

    async def Connect(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: N802
        async for request in requests:
            match convert.from_node_from_proto(request):
                case Hello() as hello:
                    self.hellos.append(hello)
                    self._contexts.append(context)
                    await self.send(Welcome(SiteName("home"), self.heartbeat_seconds, self.protocol))
                    if self.hangs_up:
                        return
                case Notice() as notice:
                    self.notices.append(notice)
                case Found() as found:
                    self.found.append(found)
                case Beat():
                    self.beats += 1
                case News() as news:
                    self.news.append(news)
                    if self.acknowledges and news.sequence:
                        await self.send(Acknowledged(news.sequence))

    async def UnregisterNode(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.gone.append(NodeId(request.node_id))
        return pb.UnregisterNodeResponse()

    async def send(self, message: ToNode) -> None:
        """To the newest stream. One at a time: gRPC takes no second write while one is under way."""
        async with self._writing:
            await self._contexts[-1].write(convert.to_node_to_proto(message))

    async def dismiss(self, reason: str) -> None:
        await self.send(Farewell(reason))

    async def order(self, order: Order) -> Result:
        """Sends it, and waits for its result."""
        known = len(self.results)
        await self.send(order)
        await self.until(lambda: any(each.generation == order.generation for each in self.results[known:]))
        return self.results[-1]

    @property
    def results(self) -> list[Result]:
        return [each.news for each in self.news if isinstance(each.news, Result)]

    @property
    def progress(self) -> list[Progress]:
        return [each.news for each in self.news if isinstance(each.news, Progress)]

    def steps(self, generation: int) -> list[str]:
        return [each.step.value for each in self.progress if each.generation == generation]

    async def until(self, is_true: Callable[[], object], *, seconds: float = 60.0) -> None:
        with anyio.fail_after(seconds):
            while not is_true():  # noqa: ASYNC110
                await anyio.sleep(0.01)

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 50)]
        )
        pb_grpc.add_NodesServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True), contextlib.suppress(grpc.aio.BaseError):
                await server.stop(None)
