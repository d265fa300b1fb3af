"""A node that does what a test tells it, on the real protocol: it connects, hears orders and answers them."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

import anyio

from homeport.core.model.instance import Failure
from homeport.core.model.node import NodeInfo
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.core.model.protocol import OWN, PeerProtocol
from homeport.errors import PeerUnavailable
from homeport.ports import (
    Acknowledged,
    Beat,
    Farewell,
    FromNode,
    Hello,
    News,
    Orphans,
    Owned,
    SiteLink,
    Stream,
    Welcome,
)
from homeport.vocabulary import OrderKind, Step
from tests.support.builders import a_node

Answer = Callable[[Order], Failure | None]


def obeys(order: Order) -> Failure | None:
    return None


class ScriptedNode:
    """Remembers every order it heard; `answer` decides how each ends."""

    def __init__(self, stream: Stream, info: NodeInfo, answer: Answer) -> None:
        self._stream = stream
        self._answer = answer
        self._sequence = 0
        self._heartbeat_seconds = 0.0
        self.info = info
        self.is_wedged = False
        """It hears and beats, and answers nothing."""
        self.is_silent = False
        """It sends no heartbeats."""
        self.orders: list[Order] = []
        self.held: dict[str, Held] = {}
        self.acknowledged = 0
        self.orphans: tuple[Owned, ...] = ()
        self.welcomed = anyio.Event()
        self.dismissed = anyio.Event()

    async def run(self) -> None:
        async for message in self._stream:
            match message:
                case Welcome():
                    self._heartbeat_seconds = message.heartbeat_seconds
                    self.welcomed.set()
                case Order():
                    self.orders.append(message)
                    if not self.is_wedged:
                        await self.finish(message)
                case Acknowledged():
                    self.acknowledged = message.sequence
                case Farewell():
                    self.dismissed.set()
                case Orphans():
                    self.orphans += message.items

    async def finish(self, order: Order) -> None:
        now = datetime.now(UTC)
        accepted = Progress(order.deployment_id, order.generation, Step.ACCEPTED, "", "order accepted", now)
        await self._stream.send(News(0, accepted))
        failure = self._answer(order)
        self._sequence += 1
        removal = order.kind is OrderKind.REMOVE
        result = Result(
            order.deployment_id,
            order.generation,
            order.kind,
            succeeded=failure is None,
            at=now,
            failure=failure,
            deleted=removal and failure is None,
            exit_code=0 if failure is None else 1,
        )
        revision = None if order.release is None else order.release.revision
        self.held[order.deployment_id] = Held(order.deployment_id, order.generation, order.kind, revision, done=True)
        await self._stream.send(News(self._sequence, result))

    async def say(self, news: FromNode) -> None:
        await self._stream.send(news)

    async def beat(self) -> None:
        await self._stream.send(Beat())

    async def keep_beating(self) -> None:
        """Until the stream ends. Without it a slow test would become one of a node that is lost."""
        with suppress(PeerUnavailable):
            while True:
                await anyio.sleep(self._heartbeat_seconds)
                if not self.is_silent:
                    await self.beat()


@asynccontextmanager
async def scripted_node(
    link: SiteLink,
    name: str = "one",
    *,
    answer: Answer = obeys,
    held: tuple[Held, ...] = (),
    labels: Mapping[str, str] | None = None,
    boot_id: str = "",
    hostname: str | None = None,
    protocol: PeerProtocol = OWN,
) -> AsyncIterator[ScriptedNode]:
    info = replace(a_node(name, labels=labels).info, protocol=protocol)
    if hostname is not None:
        info = replace(info, hostname=hostname)
    async with link.connect() as stream, anyio.create_task_group() as tasks:
        node = ScriptedNode(stream, info, answer)
        await stream.send(Hello(info, held, boot_id))
        tasks.start_soon(node.run)
        with anyio.fail_after(60):
            await node.welcomed.wait()
        tasks.start_soon(node.keep_beating)
        yield node
        tasks.cancel_scope.cancel()
