"""The open streams of a site's nodes. A node that reads too slowly loses its stream, never the site its pace:
when it comes back it hears again whatever it missed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

import anyio
import structlog
from anyio.abc import ObjectSendStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from homeport.core.model.node import NodeInfo
from homeport.core.model.order import Held, Order
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.ports import Acknowledged, Beat, Farewell, FromNode, Hello, News, NodeNews, NodeSession, ToNode, Welcome
from homeport.vocabulary import NodeId, SiteName

log = structlog.get_logger(__name__)

OUTGOING_MAX: Final = 20_000
NEWS_MAX: Final = 2_000
NEWS_BATCH_MAX: Final = 500
HELLO_SECONDS_MAX: Final = 10.0


class Greeter(Protocol):
    """What the sessions need of the conductor."""

    async def greet(self, info: NodeInfo, held: Sequence[Held]) -> None: ...
    def hear(self, node_id: NodeId) -> None: ...
    async def take(self, news: Sequence[tuple[NodeId, NodeNews]]) -> None: ...


class Sessions:
    def __init__(self, site: SiteName, *, heartbeat_seconds: float) -> None:
        self._site = site
        self._heartbeat_seconds = heartbeat_seconds
        self._outgoing: dict[NodeId, MemoryObjectSendStream[ToNode]] = {}
        self._news_in: MemoryObjectSendStream[tuple[NodeId, News]]
        self._news_out: MemoryObjectReceiveStream[tuple[NodeId, News]]
        self._news_in, self._news_out = anyio.create_memory_object_stream(NEWS_MAX)

    @property
    def connected(self) -> frozenset[NodeId]:
        return frozenset(self._outgoing)

    def send(self, node_id: NodeId, message: ToNode) -> None:
        """Hands a message to the node's stream if it has one. Never waits."""
        outgoing = self._outgoing.get(node_id)
        if outgoing is None:
            return
        try:
            outgoing.send_nowait(message)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.warning("node reads too slowly, its stream is closed", node=node_id)
            self._drop(node_id, outgoing)

    def send_order(self, node_id: NodeId, order: Order) -> None:
        self.send(node_id, order)

    def dismiss(self, node_id: NodeId, reason: str) -> None:
        """Tells a node that it was removed; its stream ends."""
        self.send(node_id, Farewell(reason))
        outgoing = self._outgoing.get(node_id)
        if outgoing is not None:
            self._drop(node_id, outgoing)

    async def serve(self, session: NodeSession, conductor: Greeter) -> None:
        """Talks with one node until its stream ends."""
        messages = aiter(session)
        with anyio.fail_after(HELLO_SECONDS_MAX):
            hello = await anext(messages, None)
        if not isinstance(hello, Hello):
            raise InvalidInput(problems=[Problem("message", "a stream begins with hello")])
        node_id = hello.info.id
        async with self._attached(node_id, session) as listening:
            self.send(node_id, Welcome(self._site, self._heartbeat_seconds))
            with listening:
                await conductor.greet(hello.info, hello.held)
                log.info("node connected", node=node_id, held=len(hello.held))
                async for message in messages:
                    await self._receive(node_id, message, conductor)
        log.info("node disconnected", node=node_id)

    async def digest_news(self, take: Callable[[Sequence[tuple[NodeId, NodeNews]]], Awaitable[None]]) -> None:
        """Makes news durable in batches, for as long as the role lives, and acknowledges it."""
        async for first in self._news_out:
            batch = [first]
            while len(batch) < NEWS_BATCH_MAX and self._news_out.statistics().current_buffer_used:
                batch.append(self._news_out.receive_nowait())
            await take([(node_id, news.news) for node_id, news in batch])
            highest: dict[NodeId, int] = {}
            for node_id, news in batch:
                highest[node_id] = max(highest.get(node_id, 0), news.sequence)
            for node_id, sequence in highest.items():
                if sequence:
                    self.send(node_id, Acknowledged(sequence))

    async def _receive(self, node_id: NodeId, message: FromNode, conductor: Greeter) -> None:
        with suppress(NotFound):  # It has just been removed; the farewell is on its way.
            conductor.hear(node_id)
        match message:
            case News():
                await self._news_in.send((node_id, message))
            case Beat():
                pass
            case Hello():
                raise InvalidInput(problems=[Problem("message", "hello is said once")])

    @asynccontextmanager
    async def _attached(self, node_id: NodeId, session: NodeSession) -> AsyncIterator[anyio.CancelScope]:
        """Registers the stream; an older one of the same node ends, for the node has given it up."""
        outgoing, queue = anyio.create_memory_object_stream[ToNode](OUTGOING_MAX)
        older = self._outgoing.get(node_id)
        if older is not None:
            self._drop(node_id, older)
        self._outgoing[node_id] = outgoing
        listening = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_pump, queue, session, listening)
            try:
                yield listening
            finally:
                self._drop(node_id, outgoing)
                tasks.cancel_scope.cancel()

    def _drop(self, node_id: NodeId, outgoing: ObjectSendStream[ToNode]) -> None:
        if self._outgoing.get(node_id) is outgoing:
            del self._outgoing[node_id]
        if isinstance(outgoing, MemoryObjectSendStream):
            outgoing.close()


async def _pump(queue: MemoryObjectReceiveStream[ToNode], session: NodeSession, listening: anyio.CancelScope) -> None:
    """Writes what is queued for the node. When the queue is closed and its last word said, the session ends."""
    async with queue:
        async for message in queue:
            await session.send(message)
    listening.cancel()
