"""The node's conversation with its site: one stream that the node opens, and opens again when it breaks.

Results and notes of drift are sent in the order of their sequence on every new stream, from the oldest that was not
acknowledged. The site may see one twice: it recognises a result by its generation, and a note by its sequence.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable

import anyio

from homeport.core.model.node import NodeInfo
from homeport.core.model.order import Order
from homeport.errors import PeerUnavailable, WorkFailed
from homeport.node.executor import Executor
from homeport.node.journal import Journal
from homeport.node.metrics import NodeMetrics
from homeport.node.news import Outlet
from homeport.node.settings import NodeSettings
from homeport.node.status import Status
from homeport.ports import (
    Acknowledged,
    Beat,
    Clock,
    Farewell,
    FromNode,
    Hello,
    News,
    SiteLink,
    Stream,
    ToNode,
    Welcome,
)

log = logging.getLogger("homeport.node")


class Connection:
    def __init__(
        self,
        *,
        settings: NodeSettings,
        link: SiteLink,
        journal: Journal,
        executor: Executor,
        outlet: Outlet,
        status: Status,
        metrics: NodeMetrics,
        clock: Clock,
        describe: Callable[[], NodeInfo],
        chance: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._link = link
        self._journal = journal
        self._executor = executor
        self._outlet = outlet
        self._status = status
        self._metrics = metrics
        self._clock = clock
        self._describe = describe
        self._chance = chance or random.Random()
        self._attempts = 0
        self._is_told = False
        """Whether the log has said that the site is away; once is enough."""
        self._is_dismissed = False
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> None:
        """Stays connected until the site says farewell; workloads are kept either way."""
        while not self._is_dismissed:
            with anyio.CancelScope() as self._scope:
                await self._connect_once()
            self._metrics.connected.set(0)
            if not self._is_dismissed:
                await anyio.sleep(self._pause())
        log.warning("the site has said farewell; not connecting again until a restart")

    def renew(self) -> None:
        """Connects anew, so that the site learns of changed capabilities."""
        if self._scope is not None:
            self._scope.cancel()

    async def _connect_once(self) -> None:
        reason = "the site has closed the stream"
        try:
            async with self._link.connect() as stream:
                await self._talk(stream)
        except PeerUnavailable as error:
            reason = str(error)
        finally:
            was_connected = self._status.connected
            if not self._is_dismissed:
                self._status.site_problem = reason
        fields = {"site": self._settings.site_address, "error": reason}
        if not self._is_told:
            self._is_told = True
            log.warning("connection to the site lost" if was_connected else "site not reached", extra=fields)

    async def _talk(self, stream: Stream) -> None:
        await self._send(stream, Hello(self._describe(), tuple(each.held for each in self._journal.entries.values())))
        messages = aiter(stream)
        heartbeat_seconds = self._settings.heartbeat_seconds
        try:
            with anyio.fail_after(self._settings.answer_seconds):
                first = await anext(messages)
        except (TimeoutError, StopAsyncIteration) as error:
            raise PeerUnavailable("the site did not welcome the node") from error
        match first:
            case Welcome():
                heartbeat_seconds = first.heartbeat_seconds or heartbeat_seconds
                self._welcomed(first)
            case Farewell():
                self._dismiss(first)
                return
            case _:
                raise PeerUnavailable("the site began without a welcome")
        problems: list[PeerUnavailable] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._speak, stream, heartbeat_seconds, tasks.cancel_scope, problems)
            try:
                await self._listen(messages)
            except PeerUnavailable as error:
                problems.append(error)
            tasks.cancel_scope.cancel()
        if problems:
            raise problems[0]

    def _welcomed(self, welcome: Welcome) -> None:
        self._attempts = 0
        self._is_told = False
        self._status.site = welcome.site
        self._status.site_problem = None
        self._metrics.connected.set(1)
        self._metrics.connections.inc()
        log.info("connected to the site", extra={"site": welcome.site, "address": self._settings.site_address})

    def _dismiss(self, farewell: Farewell) -> None:
        self._is_dismissed = True
        self._status.site_problem = f"unregistered: {farewell.reason or 'no reason given'}"

    async def _listen(self, messages: AsyncIterator[ToNode]) -> None:
        async for message in messages:
            match message:
                case Order():
                    await self._executor.order(message)
                case Acknowledged():
                    await self._acknowledge(message.sequence)
                case Farewell():
                    self._dismiss(message)
                    return
                case Welcome():
                    pass

    async def _acknowledge(self, sequence: int) -> None:
        try:
            await self._journal.acknowledge(sequence)
        except WorkFailed as error:
            # Kept, sent again on the next stream, and acknowledged again then.
            log.warning("the journal cannot be written", extra={"error": str(error)})

    async def _speak(
        self, stream: Stream, heartbeat_seconds: float, scope: anyio.CancelScope, problems: list[PeerUnavailable]
    ) -> None:
        """The only sender on the stream: news as it comes, a beat in between."""
        sent = 0
        next_beat = self._clock.monotonic() + heartbeat_seconds
        try:
            while True:
                for news in self._outlet.take():
                    await self._send(stream, News(0, news))
                for sequence, kept in self._journal.outbox.items():
                    if sequence > sent:
                        await self._send(stream, News(sequence, kept))
                        sent = sequence
                if self._clock.monotonic() >= next_beat:
                    await self._send(stream, Beat())
                    next_beat = self._clock.monotonic() + heartbeat_seconds
                with anyio.move_on_after(next_beat - self._clock.monotonic()):
                    await self._outlet.wait()
        except PeerUnavailable as error:
            problems.append(error)
            scope.cancel()

    async def _send(self, stream: Stream, message: FromNode) -> None:
        try:
            with anyio.fail_after(self._settings.answer_seconds):
                await stream.send(message)
        except TimeoutError as error:
            raise PeerUnavailable(f"the site took no message for {self._settings.answer_seconds:g} s") from error

    def _pause(self) -> float:
        """Doubles from try to try; the jitter keeps a site's nodes from coming back all at once."""
        first, last = self._settings.reconnect_first_seconds, self._settings.reconnect_max_seconds
        pause = min(first * 2.0 ** min(self._attempts, 30), last)
        self._attempts += 1
        return pause * self._chance.uniform(0.5, 1.0)
