"""The node's connection to its site: one stream that the node opens, and reopens when it breaks.

Results and notes of drift are sent in the order of their sequence on every new stream, from the oldest that was not
acknowledged. The site may receive one twice: it recognises a result by its generation, and a note by its sequence.
"""

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Protocol

import anyio

from homeport.core.model.instance import Failure
from homeport.core.model.node import NodeInfo, Tunable
from homeport.core.model.order import Order
from homeport.core.model.protocol import PeerProtocol, skew
from homeport.core.node.lanes import Lane, Lanes, NextMessage
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import InvalidInput, PeerUnavailable, UnknownKind, WorkFailed
from homeport.log import get_log
from homeport.node.journal.journal import Journal
from homeport.node.link.news import Outlet
from homeport.node.orders.executor import Executor
from homeport.node.pages.metrics import NodeMetrics
from homeport.node.pages.status import NodeStatus
from homeport.node.settings import NodeSettings
from homeport.ports import (
    Acknowledged,
    Beat,
    Clock,
    Farewell,
    FromNode,
    Hello,
    Logs,
    LogsStored,
    MessageRefusal,
    News,
    Notice,
    Orphans,
    SiteLink,
    Stream,
    Telemetry,
    ToNode,
    Unreadable,
    Welcome,
)
from homeport.vocabulary import Code, Feature, NoticeCode

log = get_log("homeport.node")

IN_PROCESS = "in this process"
"""The address in the log for a site that is reached without a network."""
STEADY_SECONDS = 10.0
"""A connection that broke sooner does not reset the backoff."""
UNACKNOWLEDGED_MAX = 1_000
"""How many results are under way to the site. One that gets more than it has room for ends the stream."""


class LogSender(Protocol):
    """The node's buffer of log lines, which sends them while a stream is open."""

    def opened(self) -> None: ...
    def closed(self) -> None: ...
    def stored(self, message: LogsStored) -> None: ...


class SiteConnection:
    def __init__(
        self,
        *,
        settings: NodeSettings,
        link: SiteLink,
        journal: Journal,
        executor: Executor,
        outlet: Outlet,
        status: NodeStatus,
        metrics: NodeMetrics,
        clock: Clock,
        describe: Callable[[], NodeInfo],
        on_orphans: Callable[[Orphans], None] = lambda _: None,
        chance: random.Random | None = None,
        set_log_level: Callable[[str], None] = lambda _: None,
        log_lines: LogSender | None = None,
        on_content_port: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._place = settings.site_address or IN_PROCESS
        self._link = link
        self._journal = journal
        self._executor = executor
        self._outlet = outlet
        self._status = status
        self._metrics = metrics
        self._clock = clock
        self._describe = describe
        self._on_orphans = on_orphans
        self._chance = chance or random.Random()
        self._set_log_level = set_log_level
        self._log_lines = log_lines
        self._on_content_port = on_content_port
        self._heartbeat_seconds = self._site_heartbeat_seconds = settings.heartbeat_seconds
        self._failures = 0
        self._is_told = False
        """Whether the log already says that the site is unreachable."""
        self._welcomed_at = 0.0
        self._is_dismissed = False
        self._boot_id = f"{self._chance.getrandbits(64):016x}"
        self._site_protocol = PeerProtocol()
        """The site's protocol; messages it has no feature for are not sent."""
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> None:
        """Stays connected until the site sends a farewell; workloads keep running either way."""
        while not self._is_dismissed:
            with anyio.CancelScope() as self._scope:
                await self._connect_once()
            self._metrics.connected.set(0)
            if not self._is_dismissed:
                await anyio.sleep(self._pause())
        log.warning("node was removed from its site, not reconnecting until restart")

    def renew(self) -> None:
        """Reconnects, so that the site gets changed capabilities."""
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
        fields = {"site": self._place, "error": reason}
        if was_connected and self._clock.monotonic() - self._welcomed_at >= STEADY_SECONDS:
            # Only a connection that has lasted resets the backoff: two machines with one id end each other's at once.
            self._failures = 0
            self._is_told = False
        if not self._is_told:
            self._is_told = True
            log.warning("connection to the site lost" if was_connected else "site not reached", **fields)

    async def _talk(self, stream: Stream) -> None:
        held = tuple(each.held for each in self._journal.entries.values())
        await self._send(stream, Hello(self._describe(), held, self._boot_id))
        messages = aiter(stream)
        try:
            with anyio.fail_after(self._settings.answer_seconds):
                first = await anext(messages)
        except (TimeoutError, StopAsyncIteration) as error:
            raise PeerUnavailable("the site did not welcome the node") from error
        match first:
            case Welcome():
                if (refusal := skew("the site", first.protocol, us="this node")) is not None:
                    raise PeerUnavailable(refusal)
                self._welcomed(first)
            case Farewell():
                self._dismiss(first)
                return
            case _:
                raise PeerUnavailable("the site began without a welcome")
        problems: list[PeerUnavailable] = []
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._speak, stream, tasks.cancel_scope, problems)
                try:
                    await self._listen(messages)
                except PeerUnavailable as error:
                    problems.append(error)
                tasks.cancel_scope.cancel()
        finally:
            if self._log_lines is not None:
                self._log_lines.closed()
        if problems:
            raise problems[0]

    def _welcomed(self, welcome: Welcome) -> None:
        self._welcomed_at = self._clock.monotonic()
        self._site_protocol = welcome.protocol
        self._site_heartbeat_seconds = welcome.heartbeat_seconds
        self._on_content_port(welcome.content_port)
        self._tune(welcome.tunable)
        if self._log_lines is not None and welcome.protocol.has(Feature.STORED_LOGS):
            self._log_lines.opened()
        self._status.site = welcome.site
        self._status.site_problem = None
        self._metrics.connected.set(1)
        self._metrics.connections.inc()
        log.info("connected to the site", site=welcome.site, address=self._place)

    def _tune(self, tunable: Tunable) -> None:
        """Applies an operator's settings, without a restart."""
        if tunable != self._status.tunable:
            log.info("settings changed", heartbeat_seconds=tunable.heartbeat_seconds, log_level=tunable.log_level)
        self._status.tunable = tunable
        self._heartbeat_seconds = (
            tunable.heartbeat_seconds or self._site_heartbeat_seconds or self._settings.heartbeat_seconds
        )
        self._set_log_level(tunable.log_level)
        self._outlet.wake()

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
                case Orphans():
                    self._on_orphans(message)
                case Tunable():
                    self._tune(message)
                case LogsStored():
                    if self._log_lines is not None:
                        self._log_lines.stored(message)
                case MessageRefusal():
                    self._metrics.refused_by_site.inc()
                    log.warning("message refused by the site", what=message.what, why=message.why)
                case Unreadable():
                    self._refuse(message)
                case Welcome():
                    pass

    def _refuse(self, message: Unreadable) -> None:
        """Answered, so that the site does not wait for a result."""
        log.warning("message refused", what=message.what, why=message.why, assignment=message.assignment)
        self._metrics.refused.labels(UnknownKind.code if message.is_unknown else InvalidInput.code).inc()
        if message.assignment is not None:
            failure = Failure(Code.INVALID_ORDER, f"The node cannot read its order: {message.why}")
            self._executor.refuse(message.assignment, failure)
        else:
            self._outlet.notice(Notice(NoticeCode.MESSAGE_REFUSED, f"a {message.what} was refused: {message.why}"))

    async def _acknowledge(self, sequence: int) -> None:
        try:
            await self._journal.acknowledge(sequence)
            self._outlet.wake()
        except WorkFailed as error:
            # Kept, sent again on the next stream, and acknowledged again then.
            log.warning("journal write failed", error=str(error))

    async def _speak(self, stream: Stream, scope: anyio.CancelScope, problems: list[PeerUnavailable]) -> None:
        """The only sender on the stream. The next message is chosen one at a time, so that a due heartbeat is sent
        before anything else."""
        lanes = self._outlet.lanes
        lanes.clear(Lane.CONTROL, Lane.ORDERS)  # They are sent again, from the journal.
        self._outlet.reopened()
        sent, said_at = 0, self._clock.monotonic()
        try:
            while True:
                if self._clock.monotonic() >= said_at + self._heartbeat_seconds:
                    lanes.put(Lane.CONTROL, Beat())
                    said_at = self._clock.monotonic()
                sent = self._fill(lanes, sent)
                following = lanes.take()
                if following is not None:
                    is_sent = await self._say(stream, following)
                    if is_sent and following.lane is Lane.TELEMETRY:
                        said_at = self._clock.monotonic()  # It says as much as a heartbeat.
                    continue
                with anyio.move_on_after(said_at + self._heartbeat_seconds - self._clock.monotonic()):
                    await self._outlet.wait()
        except PeerUnavailable as error:
            problems.append(error)
            scope.cancel()

    def _fill(self, lanes: Lanes[FromNode], sent: int) -> int:
        """Puts pending messages into their lanes, as far as there is room; returns the last sequence."""
        messages: list[FromNode] = []
        if self._site_protocol.has(Feature.NOTICE):
            messages += self._outlet.take_notices()
        if self._site_protocol.has(Feature.ORPHANS) and (found := self._outlet.take_found()) is not None:
            messages.append(found)
        if self._site_protocol.has(Feature.REPLICAS) and (replicas := self._outlet.take_replicas()) is not None:
            messages.append(replicas)
        messages += [News(0, news) for news in self._outlet.take()]
        for message in messages:
            lanes.put(Lane.ORDERS, message)
        waiting = self._journal.news_after(sent)
        unacknowledged = len(self._journal.outbox) - len(waiting)
        room = min(lanes.room(Lane.ORDERS), UNACKNOWLEDGED_MAX - unacknowledged)
        for sequence, news in waiting[: max(0, room)]:
            lanes.put(Lane.ORDERS, News(sequence, news))
            sent = sequence
        return sent

    async def _say(self, stream: Stream, following: NextMessage[FromNode]) -> bool:
        """Skips what the site has no feature for; the number of dropped messages is sent with the next one."""
        message = following.message
        if isinstance(message, Logs | Telemetry):
            if not self._site_protocol.has(Feature.LOGS if isinstance(message, Logs) else Feature.TELEMETRY):
                return False
            message = replace(message, dropped=following.dropped)
        await self._send(stream, message)
        return True

    async def _send(self, stream: Stream, message: FromNode) -> None:
        try:
            with anyio.fail_after(self._settings.answer_seconds):
                await stream.send(message)
        except TimeoutError as error:
            raise PeerUnavailable(f"the site took no message for {self._settings.answer_seconds:g} s") from error

    def _pause(self) -> float:
        """Jitter keeps a site's nodes from reconnecting all at once."""
        self._failures += 1
        policy = BackoffPolicy(self._settings.reconnect_first_seconds, self._settings.reconnect_max_seconds)
        return policy.delay_seconds(self._failures, chance=self._chance.random())
