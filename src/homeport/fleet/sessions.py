"""The open streams of a site's nodes. A node that reads too slowly loses its stream, never the site its pace:
when it comes back it hears again whatever it missed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, Protocol

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from homeport.core.model.node import NodeInfo
from homeport.core.model.order import Held, Order, Progress
from homeport.errors import (
    HomeportError,
    InvalidInput,
    NotAuthorized,
    NotFound,
    PeerUnavailable,
    Problem,
    TransientError,
)
from homeport.ports import Acknowledged, Beat, Farewell, FromNode, Hello, News, NodeNews, NodeSession, ToNode, Welcome
from homeport.vocabulary import NodeId, SiteName

log = structlog.get_logger(__name__)

OUTGOING_MAX: Final = 20_000
NEWS_MAX: Final = 2_000
NEWS_BATCH_MAX: Final = 500
TAKE_AGAIN_SECONDS: Final = 2.0
HELLO_SECONDS_MAX: Final = 10.0
FAREWELL_SECONDS_MAX: Final = 5.0
"""How long a node that was dismissed may take to read so."""

Check = Callable[[NodeId], None]
"""Raises NotAuthorized for a node that whoever is at the other end may not speak for. Called at every message."""


class Greeter(Protocol):
    """What the sessions need of the conductor."""

    async def greet(self, info: NodeInfo, held: Sequence[Held]) -> None: ...
    def hear(self, node_id: NodeId) -> None: ...
    async def take(self, news: Sequence[tuple[NodeId, NodeNews]]) -> None: ...


@dataclass(slots=True, eq=False)
class _Line:
    """One open stream. Its scope ends the listening; `problem` is then what the node is told."""

    outgoing: MemoryObjectSendStream[ToNode]
    queue: MemoryObjectReceiveStream[ToNode]
    listening: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    problem: HomeportError | None = None

    def hang_up(self, problem: HomeportError | None = None) -> None:
        """At once, whether or not the node has read what was queued for it."""
        self.problem = self.problem or problem
        self.outgoing.close()
        self.listening.cancel()


class Sessions:
    def __init__(self, site: SiteName, *, heartbeat_seconds: float) -> None:
        self._site = site
        self._heartbeat_seconds = heartbeat_seconds
        self._lines: dict[NodeId, _Line] = {}
        self._noted: dict[NodeId, tuple[int, datetime]] = {}
        """Sequence and time of the newest progress of each node that was numbered, and is durable here."""
        self._news_in: MemoryObjectSendStream[tuple[NodeId, News]]
        self._news_out: MemoryObjectReceiveStream[tuple[NodeId, News]]
        self._news_in, self._news_out = anyio.create_memory_object_stream(NEWS_MAX)

    def close(self) -> None:
        """For a site that ends before it began."""
        self._news_in.close()
        self._news_out.close()

    @property
    def connected(self) -> frozenset[NodeId]:
        return frozenset(self._lines)

    def send(self, node_id: NodeId, message: ToNode) -> None:
        """Hands a message to the node's stream if it has one. Never waits."""
        line = self._lines.get(node_id)
        if line is None:
            return
        try:
            line.outgoing.send_nowait(message)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.warning("node reads too slowly, its stream is closed", node=node_id)
            self._forget(node_id, line)
            line.hang_up()

    def send_order(self, node_id: NodeId, order: Order) -> None:
        self.send(node_id, order)

    def dismiss(self, node_id: NodeId, reason: str) -> None:
        """Tells a node that it was removed; its stream ends when it has read so."""
        self.send(node_id, Farewell(reason))
        line = self._lines.get(node_id)
        if line is not None:
            self._forget(node_id, line)
            line.outgoing.close()
            line.listening.deadline = anyio.current_time() + FAREWELL_SECONDS_MAX

    def expel(self, node_id: NodeId, reason: str) -> None:
        """Ends the stream of a machine that is no longer believed, at once and in the middle of whatever it says.
        No farewell: it may come back by itself if it is accepted again."""
        line = self._lines.get(node_id)
        if line is not None:
            log.warning("node expelled", node=node_id, why=reason)
            self._forget(node_id, line)
            line.hang_up(NotAuthorized(reason, target=node_id))

    async def serve(self, session: NodeSession, conductor: Greeter, *, check: Check = lambda node_id: None) -> None:
        """Talks with one node until its stream ends. Raises what the node is to be told of a stream that was ended
        for a reason."""
        messages = aiter(session)
        with anyio.fail_after(HELLO_SECONDS_MAX):
            hello = await anext(messages, None)
        if not isinstance(hello, Hello):
            raise InvalidInput(problems=[Problem("message", "a stream begins with hello")])
        check(hello.info.id)
        line = self._attach(hello.info.id)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pump, line, session)
                with line.listening:
                    await self._listen(hello, messages, line, conductor, check)
                tasks.cancel_scope.cancel()
        finally:
            self._forget(hello.info.id, line)
            line.outgoing.close()
            line.queue.close()
            log.info("node disconnected", node=hello.info.id)
        if line.problem is not None:
            raise line.problem

    async def _listen(
        self, hello: Hello, messages: AsyncIterator[FromNode], line: _Line, conductor: Greeter, check: Check
    ) -> None:
        node_id = hello.info.id
        self.send(node_id, Welcome(self._site, self._heartbeat_seconds))
        try:
            await conductor.greet(hello.info, hello.held)
            log.info("node connected", node=node_id, held=len(hello.held))
            async for message in messages:
                check(node_id)
                await self._receive(node_id, message, conductor)
        except HomeportError as error:
            # Kept until the task group is left, which would wrap it in a group of its own.
            line.problem = error

    async def digest_news(self, take: Callable[[Sequence[tuple[NodeId, NodeNews]]], Awaitable[None]]) -> None:
        """Makes news durable in batches, for as long as the role lives, and acknowledges it."""
        async with self._news_in, self._news_out:
            async for first in self._news_out:
                batch = [first]
                while len(batch) < NEWS_BATCH_MAX and self._news_out.statistics().current_buffer_used:
                    batch.append(self._news_out.receive_nowait())
                fresh = [(node_id, news.news) for node_id, news in batch if not self._is_repeated(node_id, news)]
                await _patiently(partial(take, fresh))
                self._note(batch)
                self._acknowledge(batch)

    def _is_repeated(self, node_id: NodeId, news: News) -> bool:
        """Whether it was made durable here and only the word of that was lost. A result is recognised by what is
        known of its instance. A node that lost its journal counts anew, but not back in time."""
        if not news.sequence or not isinstance(news.news, Progress) or node_id not in self._noted:
            return False
        sequence, at = self._noted[node_id]
        return news.sequence <= sequence and news.news.at <= at

    def _note(self, batch: Sequence[tuple[NodeId, News]]) -> None:
        for node_id, news in batch:
            if news.sequence and isinstance(news.news, Progress):
                self._noted[node_id] = news.sequence, news.news.at

    def _acknowledge(self, batch: Sequence[tuple[NodeId, News]]) -> None:
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
                try:
                    await self._news_in.send((node_id, message))
                except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
                    raise PeerUnavailable("the site is stopping") from error
            case Beat():
                pass
            case Hello():
                raise InvalidInput(problems=[Problem("message", "hello is said once")])

    def _attach(self, node_id: NodeId) -> _Line:
        """Registers the stream; an older one of the same node ends, for the node has given it up."""
        line = _Line(*anyio.create_memory_object_stream[ToNode](OUTGOING_MAX))
        older = self._lines.pop(node_id, None)
        if older is not None:
            older.hang_up()
        self._lines[node_id] = line
        return line

    def _forget(self, node_id: NodeId, line: _Line) -> None:
        if self._lines.get(node_id) is line:
            del self._lines[node_id]


async def _patiently(take: Callable[[], Awaitable[None]]) -> None:
    """News that cannot be written is kept and tried again: a disk that was full may be freed. That is harmless."""
    while True:
        try:
            await take()
        except TransientError as error:
            log.warning("what nodes say waits for the database", why=str(error))
            await anyio.sleep(TAKE_AGAIN_SECONDS)
        else:
            return


async def _pump(line: _Line, session: NodeSession) -> None:
    """Writes what is queued for the node. When the queue is closed and its last word said, the session ends."""
    with suppress(PeerUnavailable):
        async with line.queue:
            async for message in line.queue:
                await session.send(message)
    line.listening.cancel()
