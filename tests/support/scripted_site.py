"""A site that does what a test tells it, and speaks the real protocol over a real socket."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from homeport.adapters.link.grpc_server import serve_grpc
from homeport.core.model.order import Order, Progress, Result
from homeport.core.model.protocol import OWN
from homeport.ports import Acknowledged, Beat, Farewell, FoundWorkloads, Hello, News, Notice, ToNode, Welcome
from homeport.vocabulary import NodeId, SiteName
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb


class ScriptedSite:
    def __init__(self, *, heartbeat_seconds: float = 5.0) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        self.protocol = OWN
        self.acknowledges = True
        self.hangs_up = False
        """Whether it ends each stream right after its welcome."""
        self.notices: list[Notice] = []
        self.found: list[FoundWorkloads] = []
        self.hellos: list[Hello] = []
        self.news: list[News] = []
        self.beats = 0
        self.gone: list[NodeId] = []
        self._streams: list[Stream[Any, Any]] = []
        self._writing = anyio.Lock()

    def _calls(self) -> dict[str, Handler]:
        return {
            "/homeport.v1.Nodes/Connect": Handler(self._connect, Cardinality.STREAM_STREAM, pb.FromNode, pb.ToNode),
            "/homeport.v1.Nodes/UnregisterNode": Handler(
                self._unregister, Cardinality.UNARY_UNARY, pb.UnregisterNodeRequest, pb.UnregisterNodeResponse
            ),
        }

    async def _connect(self, stream: Stream[Any, Any]) -> None:
        async for request in stream:
            match convert.from_node_from_proto(request):
                case Hello() as hello:
                    self.hellos.append(hello)
                    self._streams.append(stream)
                    await self.send(Welcome(SiteName("home"), self.heartbeat_seconds, self.protocol))
                    if self.hangs_up:
                        return
                case Notice() as notice:
                    self.notices.append(notice)
                case FoundWorkloads() as found:
                    self.found.append(found)
                case Beat():
                    self.beats += 1
                case News() as news:
                    self.news.append(news)
                    if self.acknowledges and news.sequence:
                        await self.send(Acknowledged(news.sequence))

    async def _unregister(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        assert request is not None
        self.gone.append(NodeId(request.node_id))
        await stream.send_message(pb.UnregisterNodeResponse())

    async def send(self, message: ToNode) -> None:
        """To the newest stream, one message at a time."""
        async with self._writing:
            await self._streams[-1].send_message(convert.to_node_to_proto(message))

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
        async with serve_grpc(lambda _: self._calls(), f"127.0.0.1:{port}"):
            yield
