"""The open streams of a site's nodes. A node that reads too slowly loses its stream and never slows down the site:
after reconnecting it gets everything it missed.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from typing import Final, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from homeport.core.model.node import NodeInfo, Tunable
from homeport.core.model.order import Held, Order, Progress
from homeport.core.model.protocol import OWN, UNSAID, PeerProtocol, skew
from homeport.core.node.lanes import Lanes
from homeport.errors import (
    Conflict,
    HomeportError,
    InvalidInput,
    InvariantViolated,
    NotAuthorized,
    NotFound,
    PeerIncompatible,
    PeerUnavailable,
    Problem,
    TransientError,
    UnknownKind,
)
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import (
    Acknowledged,
    Beat,
    EngineHandoffs,
    Farewell,
    FoundWorkloads,
    FromNode,
    Hello,
    Logs,
    MessageRefusal,
    News,
    NodeNews,
    NodeSession,
    Notice,
    Orphans,
    Owned,
    Telemetry,
    ToNode,
    Unreadable,
    Welcome,
    lane_of,
)
from homeport.vocabulary import Feature, NodeId, NoticeCode, SiteName

log = get_log(__name__)

REPLACED_KEPT: Final = 8
NEWS_MAX: Final = 2_000
NEWS_OF_ONE_MAX: Final = 2_000
PROGRESS_OF_ONE_MAX: Final = NEWS_OF_ONE_MAX // 2
"""Results, of which a node has as many under way at most, find the other half."""
NEWS_BATCH_MAX: Final = 500
NOTED_MAX: Final = 256
"""So much durable progress of a node is remembered, to recognise it when the node says it again. More may be reported
twice."""
WRITE_RETRY_SECONDS: Final = 2.0
HELLO_SECONDS_MAX: Final = 10.0
FAREWELL_SECONDS_MAX: Final = 5.0
"""How long a removed node may take to read its farewell."""

Check = Callable[[NodeId], None]
"""Raises NotAuthorized for a node that the peer may not act for. Called at every message."""


class NodeHandler(Protocol):
    """The part of the conductor that sessions need."""

    async def connected(self, info: NodeInfo, held: Sequence[Held], *, is_open: Callable[[], bool]) -> None: ...
    def heartbeat(self, node_id: NodeId) -> None: ...
    async def take(self, news: Sequence[tuple[NodeId, NodeNews]]) -> None: ...
    def tunable(self, node_id: NodeId) -> Tunable: ...
    async def notice(self, node_id: NodeId, notice: Notice) -> None: ...
    async def report_problem(self, node_id: NodeId, code: NoticeCode, message: str) -> None: ...
    async def orphans_of(self, node_id: NodeId, found: Sequence[Owned]) -> tuple[Owned, ...]: ...


@dataclass(slots=True, eq=False)
class _Line:
    """One open stream. Cancelling its scope ends the reading; `problem` is then sent to the node."""

    news: MemoryObjectSendStream[News]
    news_queue: MemoryObjectReceiveStream[News]
    """The queue of news, separate from heartbeats: it may wait for the database."""
    listening: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    problem: HomeportError | None = None
    boot_id: str = ""
    takes_refusals: bool = False
    takes_settings: bool = False
    outgoing: Lanes[ToNode] = field(default_factory=Lanes[ToNode])
    is_closed: bool = False
    """Whether nothing more is accepted; queued messages are sent before the stream ends."""
    changed: anyio.Event = field(default_factory=anyio.Event)

    def send(self, message: ToNode) -> bool:
        """False where that lane is full, or the stream is ending."""
        taken = not self.is_closed and self.outgoing.put(lane_of(message), message)
        self.changed.set()
        return taken

    def finish(self) -> None:
        self.is_closed = True
        self.changed.set()

    def close(self) -> None:
        self.finish()
        for each in (self.news, self.news_queue):
            each.close()

    def hang_up(self, problem: HomeportError | None = None) -> None:
        """Ends the stream at once, whether or not the node has read what was queued."""
        self.problem = self.problem or problem
        self.finish()
        self.listening.cancel()


class NodeSessions:
    def __init__(
        self,
        site: SiteName,
        *,
        heartbeat_seconds: float,
        on_stream: Callable[[NodeId, Logs | Telemetry], None] = lambda node_id, message: None,
        on_replicas: Callable[[NodeId, EngineHandoffs], None] = lambda node_id, message: None,
    ) -> None:
        """`on_stream` receives logs and telemetry, and never blocks: it is a bounded queue, or discards them."""
        self._site = site
        self._on_stream = on_stream
        self._on_replicas = on_replicas
        self._heartbeat_seconds = heartbeat_seconds
        self.content_port = 0
        """Where nodes fetch content; 0 for nowhere."""
        self._lines: dict[NodeId, _Line] = {}
        self.refused: Counter[str] = Counter()
        """Unreadable messages of nodes since the start, by code."""
        self._noted: dict[NodeId, dict[int, datetime]] = {}
        """Sequence and time of the latest durable progress of each node, of that with a sequence."""
        self._replaced: dict[NodeId, tuple[str, ...]] = {}
        """Starts of each node whose stream was replaced by that of another start."""
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
        """Hands a message to the node's stream if it has one. Never blocks."""
        line = self._lines.get(node_id)
        if line is None:
            return
        if not line.send(message):
            log.warning("node stream closed, reader too slow", node=node_id)
            self._forget(node_id, line)
            line.hang_up()

    def tune(self, node_id: NodeId, tunable: Tunable) -> None:
        """Sends changed settings to a node that supports them; another one gets them with its next welcome."""
        line = self._lines.get(node_id)
        if line is not None and line.takes_settings:
            self.send(node_id, tunable)

    def send_order(self, node_id: NodeId, order: Order) -> None:
        self.send(node_id, order)

    def dismiss(self, node_id: NodeId, reason: str) -> None:
        """Notifies a node that it was removed; its stream ends when it has read that."""
        self.send(node_id, Farewell(reason))
        line = self._lines.get(node_id)
        if line is not None:
            self._forget(node_id, line)
            line.finish()
            line.listening.deadline = anyio.current_time() + FAREWELL_SECONDS_MAX

    def evict(self, node_id: NodeId, reason: str) -> None:
        """Ends the stream of a machine that is no longer trusted, at once. No farewell: it may reconnect by itself
        once it is accepted again."""
        line = self._lines.get(node_id)
        if line is not None:
            log.warning("node removed", node=node_id, why=reason)
            self._forget(node_id, line)
            line.hang_up(NotAuthorized(reason, target=node_id))

    async def serve(
        self, session: NodeSession, conductor: NodeHandler, *, check: Check = lambda node_id: None
    ) -> None:
        """Serves one node until its stream ends. Raises the error to send to the node, where the stream was ended for
        a reason."""
        messages = aiter(session)
        with anyio.fail_after(HELLO_SECONDS_MAX):
            hello = await anext(messages, None)
        if not isinstance(hello, Hello):
            raise InvalidInput(problems=[Problem("message", "a stream must begin with hello")])
        check(hello.info.id)
        await self._refuse_skew(hello, conductor)
        await self._refuse_duplicate(hello, conductor)
        line = self._attach(hello.info.id, hello.boot_id, protocol=hello.info.protocol)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pump, line, session)
                tasks.start_soon(self._forward_news, hello.info.id, line)
                with line.listening:
                    await self._listen(hello, messages, line, conductor, check)
                tasks.cancel_scope.cancel()
        finally:
            self._forget(hello.info.id, line)
            line.close()
            log.info("node disconnected", node=hello.info.id)
        if line.problem is not None:
            raise line.problem

    async def _listen(
        self, hello: Hello, messages: AsyncIterator[FromNode], line: _Line, conductor: NodeHandler, check: Check
    ) -> None:
        node_id = hello.info.id
        tunable = conductor.tunable(node_id)
        # A node without support for settings gets its heartbeat interval only from the welcome.
        seconds = 0.0 if line.takes_settings else tunable.heartbeat_seconds
        self.send(
            node_id,
            Welcome(self._site, seconds or self._heartbeat_seconds, OWN, tunable, content_port=self.content_port),
        )
        try:
            await conductor.connected(hello.info, hello.held, is_open=lambda: self._lines.get(node_id) is line)
            log.info("node connected", node=node_id, held=len(hello.held))
            async for message in messages:
                check(node_id)
                await self._receive(node_id, message, conductor, line)
        except HomeportError as error:
            # Raised after the task group, which would wrap it in an exception group.
            line.problem = error

    def _put_news(self, node_id: NodeId, news: News, line: _Line) -> None:
        """Into the common queue; into the node's own while that is full, or earlier news waits there."""
        waiting = line.news.statistics().current_buffer_used
        if not news.sequence and waiting >= PROGRESS_OF_ONE_MAX:
            return  # Lost progress does no harm.
        if not waiting:
            try:
                self._news_in.send_nowait((node_id, news))
            except anyio.WouldBlock:
                pass
            except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
                raise PeerUnavailable("the site is stopping") from error
            else:
                return
        line.news.send_nowait(news)

    async def _forward_news(self, node_id: NodeId, line: _Line) -> None:
        with suppress(anyio.ClosedResourceError):
            async for news in line.news_queue:
                try:
                    await self._news_in.send((node_id, news))
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    line.hang_up(PeerUnavailable("the site is stopping"))
                    return

    async def record_news(self, take: Callable[[Sequence[tuple[NodeId, NodeNews]]], Awaitable[None]]) -> None:
        """Makes news durable in batches, while the role runs, and acknowledges it."""
        async with self._news_in, self._news_out:
            async for first in self._news_out:
                batch = [first]
                while len(batch) < NEWS_BATCH_MAX and self._news_out.statistics().current_buffer_used:
                    batch.append(self._news_out.receive_nowait())
                fresh = [(node_id, news.news) for node_id, news in batch if not self._is_repeated(node_id, news)]
                await _take_each(take, fresh)
                self._note(batch)
                self._acknowledge(batch)

    def _is_repeated(self, node_id: NodeId, news: News) -> bool:
        """Whether it is already durable here and only the acknowledgement was lost. A result is recognised by the
        state of its instance. A node that lost its journal, or has an older copy of it, gives sequences out again, at
        other times; its clock may be behind."""
        noted = self._noted.get(node_id)
        return noted is not None and isinstance(news.news, Progress) and noted.get(news.sequence) == news.news.at

    def _note(self, batch: Sequence[tuple[NodeId, News]]) -> None:
        for node_id, news in batch:
            if news.sequence and isinstance(news.news, Progress):
                noted = self._noted.setdefault(node_id, {})
                noted.pop(news.sequence, None)
                noted[news.sequence] = news.news.at
                if len(noted) > NOTED_MAX:
                    del noted[next(iter(noted))]

    def _acknowledge(self, batch: Sequence[tuple[NodeId, News]]) -> None:
        highest: dict[NodeId, int] = {}
        for node_id, news in batch:
            highest[node_id] = max(highest.get(node_id, 0), news.sequence)
        for node_id, sequence in highest.items():
            if sequence:
                self.send(node_id, Acknowledged(sequence))

    def take(self, node_id: NodeId, message: Logs | Telemetry) -> None:
        """Of a node that has no stream of its own."""
        self._on_stream(node_id, message)

    async def _receive(self, node_id: NodeId, message: FromNode, conductor: NodeHandler, line: _Line) -> None:
        """Never waits for the database because of news: a heartbeat after them would be late."""
        with suppress(NotFound):  # It has just been removed; the farewell is being sent.
            conductor.heartbeat(node_id)
        match message:
            case News():
                if isinstance(message.news, Unreadable):
                    self._refuse(node_id, message.news, line)
                try:
                    self._put_news(node_id, message, line)
                except anyio.WouldBlock as error:
                    if message.sequence:  # It is sent again on the next stream.
                        raise PeerUnavailable("the site cannot keep up with the messages of this node") from error
            case Notice():
                await conductor.notice(node_id, message)
            case FoundWorkloads():
                if orphans := await conductor.orphans_of(node_id, message.items):
                    self.send(node_id, Orphans(orphans))
            case Unreadable():
                self._refuse(node_id, message, line)
                await conductor.notice(node_id, _refusal(message))
            case Logs() | Telemetry():
                self._on_stream(node_id, message)
            case EngineHandoffs():
                # The node is who its certificate says; a record that names another node is not believed.
                own = tuple(replace(each, node_id=node_id) for each in message.handoffs)
                self._on_replicas(node_id, replace(message, handoffs=own))
            case Beat():
                pass
            case Hello():
                raise InvalidInput(problems=[Problem("message", "hello may be sent once only")])

    async def _refuse_duplicate(self, hello: Hello, conductor: NodeHandler) -> None:
        """A process that was replaced by another one of its node and is back was not restarted: two machines have one
        id, most likely by a copied disk. The connected one stays; else each would end the other's stream."""
        node_id = hello.info.id
        line = self._lines.get(node_id)
        if not hello.boot_id or line is None or hello.boot_id not in self._replaced.get(node_id, ()):
            return
        message = (
            f"two machines connect as node {node_id}; the one called {hello.info.hostname} is refused while the other"
            " is connected. Give one of them a data folder and an id of its own."
        )
        await conductor.report_problem(node_id, NoticeCode.TWIN, message)
        raise Conflict(message)

    async def _refuse_skew(self, hello: Hello, conductor: NodeHandler) -> None:
        node_id = hello.info.id
        message = skew(f"node {node_id}", hello.info.protocol, us=f"site {self._site}")
        if message is not None:
            await conductor.report_problem(node_id, NoticeCode.VERSION_SKEW, message)
            raise PeerIncompatible(message)

    def _refuse(self, node_id: NodeId, message: Unreadable, line: _Line) -> None:
        """Counted, and reported to a node that supports it; the message itself is skipped."""
        self.refused[UnknownKind.code if message.is_unknown else InvalidInput.code] += 1
        if line.takes_refusals:
            self.send(node_id, MessageRefusal(message.what, message.why))

    def _attach(self, node_id: NodeId, boot_id: str = "", *, protocol: PeerProtocol = UNSAID) -> _Line:
        """Registers the stream; an older one of the same node ends, because the node has given it up."""
        news = anyio.create_memory_object_stream[News](NEWS_OF_ONE_MAX)
        line = _Line(
            *news,
            boot_id=boot_id,
            takes_refusals=protocol.has(Feature.REFUSALS),
            takes_settings=protocol.has(Feature.SETTINGS),
        )
        older = self._lines.pop(node_id, None)
        if older is not None:
            if older.boot_id and older.boot_id != boot_id:
                self._replaced[node_id] = (*self._replaced.get(node_id, ()), older.boot_id)[-REPLACED_KEPT:]
            older.hang_up()
        self._lines[node_id] = line
        return line

    def _forget(self, node_id: NodeId, line: _Line) -> None:
        if self._lines.get(node_id) is line:
            del self._lines[node_id]


async def _take_each(
    take: Callable[[Sequence[tuple[NodeId, NodeNews]]], Awaitable[None]], news: Sequence[tuple[NodeId, NodeNews]]
) -> None:
    """All at once; after an unexpected exception one by one, and the bad one is skipped: it would fail again at each
    start."""
    try:
        await _retry_until_written(partial(take, news))
    except InvariantViolated:
        raise
    except Exception:
        if len(news) == 1:
            log.exception("news set aside", node=news[0][0], what=repr(news[0][1])[:500])
            return
        for each in news:
            await _take_each(take, [each])


def _refusal(unreadable: Unreadable) -> Notice:
    return Notice(NoticeCode.MESSAGE_REFUSED, f"a {unreadable.what} of the node was refused: {unreadable.why}")


async def _retry_until_written(take: Callable[[], Awaitable[None]]) -> None:
    """Retries news that cannot be written: a full disk may be freed. Repeats are harmless."""
    while True:
        try:
            await take()
        except TransientError as error:
            log.warning("node messages delayed, database unavailable", why=str(error))
            await anyio.sleep(WRITE_RETRY_SECONDS)
        else:
            return


async def _pump(line: _Line, session: NodeSession) -> None:
    """Writes the queue to the node. When the queue is closed and empty, the session ends."""
    with suppress(PeerUnavailable):
        while True:
            line.changed = anyio.Event()
            while (following := line.outgoing.take()) is not None:
                await session.send(following.message)
            if line.is_closed:
                break
            await line.changed.wait()
    line.listening.cancel()
