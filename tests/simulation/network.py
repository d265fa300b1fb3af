"""Cables between machines, and what travels over them: streams between nodes and sites, calls from sites to central.

Inside one stream messages keep their order; across streams and calls nothing is promised. A cut cable stalls what
is under way; who waits too long gives the connection up, and whatever was still on the way is lost with it.
"""

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from homeport.core.secrets import SecretsThere
from homeport.errors import GitUnavailable, HomeportError, NotFound, PeerUnavailable, Refused
from homeport.ports import (
    CentralLink,
    FromCentral,
    FromNode,
    JoinAnswer,
    Lineage,
    NodeReception,
    Outgoing,
    Stream,
    ToNode,
)
from homeport.vocabulary import NodeId, SiteName
from tests.simulation.life import Life
from tests.simulation.loop import current_time, start_in

M = TypeVar("M")
T = TypeVar("T")

KEEPALIVE_SECONDS = 15.0
"""After how long a stream over a cut cable is given up by either end."""
CALL_SECONDS = 15.0
SILENCE_SECONDS = 30.0
DIAL_SECONDS = 8.0
Find = Callable[[], Life | None]
"""The present life of whoever is called; None while it is down."""


@dataclass(slots=True, eq=False)
class Cable:
    chance: random.Random
    is_up: bool = True
    is_slow: bool = False
    loss: float = 0.0
    """The share of calls whose request or answer is lost."""
    wires: "list[Pipe[FromNode] | Pipe[ToNode] | Pipe[FromCentral]]" = field(default_factory=list)

    def cut(self) -> None:
        self.is_up = False
        self.look()

    def heal(self) -> None:
        self.is_up, self.is_slow, self.loss = True, False, 0.0
        self.look()

    def reset(self) -> None:
        """Somebody in between ends every connection; what was on the way is lost."""
        for wire in list(self.wires):
            wire.tear()

    def look(self) -> None:
        for wire in self.wires:
            wire.stir()

    def latency(self) -> float:
        kind = self.chance.random()
        if self.is_slow:
            return self.chance.uniform(0.3, 3.0)
        if kind < 0.9:
            return self.chance.uniform(0.001, 0.02)
        return self.chance.uniform(0.02, 0.5)

    def is_lost(self) -> bool:
        return not self.is_up or (self.loss > 0 and self.chance.random() < self.loss)

    async def reach_git(self) -> None:
        await anyio.sleep(self.latency())
        if self.is_lost():
            await anyio.sleep(self.chance.uniform(0.1, 5.0))
            raise GitUnavailable("The Git repository cannot be reached.")


class Pipe(Generic[M]):
    """One direction of a stream. A reader waits while the cable is cut, and gives up after the keep-alive."""

    def __init__(self, cable: Cable, *, patience_seconds: float) -> None:
        self._cable = cable
        self._patience_seconds = patience_seconds
        self._queue: deque[tuple[float, M]] = deque()
        self._arrival = 0.0
        self._stirred = anyio.Event()
        self.is_torn = False
        self.ends_at: float | None = None
        """When the reader learns that the other end has closed it."""
        self.problem: HomeportError | None = None
        cable.wires.append(self)  # type: ignore[arg-type]

    def put(self, message: M) -> None:
        if self.is_torn or self.ends_at is not None:
            return
        self._arrival = max(self._arrival, current_time() + self._cable.latency())
        self._queue.append((self._arrival, message))
        self.stir()

    def stir(self) -> None:
        stirred, self._stirred = self._stirred, anyio.Event()
        stirred.set()

    def tear(self) -> None:
        self.is_torn = True
        if self in self._cable.wires:
            self._cable.wires.remove(self)  # type: ignore[arg-type]
        self.stir()

    def close(self, *, is_told: bool, problem: HomeportError | None = None) -> None:
        """The writer has left. Without a word the reader finds out by the keep-alive."""
        if self.ends_at is None:
            self.problem = problem
            now = current_time()
            told = max(self._arrival, now + self._cable.latency())
            self.ends_at = told if is_told and self._cable.is_up else now + self._patience_seconds
            self.stir()

    async def get(self) -> M | None:
        """The next message; None at the end, whatever ended it."""
        cut_since: float | None = None
        while not self.is_torn:
            now, stirred = current_time(), self._stirred
            if not self._cable.is_up:
                cut_since = now if cut_since is None else cut_since
                wake: float | None = cut_since + self._patience_seconds
                if now >= cut_since + self._patience_seconds:
                    break
            else:
                cut_since = None
                if self._queue and self._queue[0][0] <= now:
                    return self._queue.popleft()[1]
                if self.ends_at is not None and now >= self.ends_at and not self._queue:
                    break
                wake = self._queue[0][0] if self._queue else self.ends_at
            with anyio.move_on_after(float("inf") if wake is None else max(0.0, wake - now)):
                await stirred.wait()
        self.tear()
        return None

    async def __aiter__(self) -> AsyncIterator[M]:
        while (message := await self.get()) is not None:
            yield message


class _End(Generic[M, T]):
    """One end of a stream between a node and its site."""

    def __init__(self, life: Life, incoming: Pipe[M], outgoing: Pipe[T]) -> None:
        self._life = life
        self._incoming = incoming
        self._outgoing = outgoing

    async def send(self, message: T) -> None:
        await self._life.breathe()
        await anyio.lowlevel.checkpoint()
        if self._incoming.is_torn or self._outgoing.is_torn:
            raise PeerUnavailable("the stream has broken")
        self._outgoing.put(message)

    async def __aiter__(self) -> AsyncIterator[M]:
        async for message in self._incoming:
            await self._life.breathe()
            yield message
        if self._incoming.problem is not None:
            raise PeerUnavailable(f"closed: {self._incoming.problem}") from self._incoming.problem


class StreamLink:
    """`ports.SiteLink` of one node."""

    def __init__(self, life: Life, cable: Cable, find_site: Find) -> None:
        self._life = life
        self._cable = cable
        self._find_site = find_site

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Stream]:
        site = await self._dial()
        up: Pipe[FromNode] = Pipe(self._cable, patience_seconds=KEEPALIVE_SECONDS)
        down: Pipe[ToNode] = Pipe(self._cable, patience_seconds=KEEPALIVE_SECONDS)
        assert site.tasks is not None, "an open door has somebody behind it"
        start_in(site.name, site.tasks, self._serve, site, up, down)
        try:
            yield _End(self._life, down, up)
        finally:
            up.close(is_told=not self._life.power_cut)
            down.tear()

    async def unregister(self, node_id: NodeId) -> None:
        reception: NodeReception = (await self._dial()).door
        try:
            await reception.unregister(node_id)
        except NotFound:
            return

    async def _dial(self) -> Life:
        await self._life.breathe()
        await anyio.sleep(self._cable.latency())
        if not self._cable.is_up:
            await anyio.sleep(DIAL_SECONDS)
            raise PeerUnavailable("the site does not answer")
        site = self._find_site()
        if site is None or site.door is None:
            raise PeerUnavailable("the site refuses the connection")
        return site

    async def _serve(self, site: Life, up: Pipe[FromNode], down: Pipe[ToNode]) -> None:
        """The site's end, in the site's own process."""
        problem: HomeportError | None = None
        try:
            await site.door.converse(_End(site, up, down))
        except HomeportError as error:
            problem = error
        except TimeoutError:
            pass
        finally:
            down.close(is_told=not site.power_cut, problem=problem)
            up.tear()


@dataclass(slots=True, eq=False)
class _Answer(Generic[T]):
    is_there: anyio.Event = field(default_factory=anyio.Event)
    value: T | None = None
    error: HomeportError | None = None


class CallLink:
    """`ports.CentralLink` of one site: each call travels on its own, may be lost on either way, and may arrive long
    after its caller has given up."""

    def __init__(self, life: Life, cable: Cable, find_central: Find, air: TaskGroup) -> None:
        self._life = life
        self._cable = cable
        self._find_central = find_central
        self._air = air

    async def join(
        self, site: SiteName, *, epoch: str, software_version: str, lineage: Lineage | None = None
    ) -> JoinAnswer:
        return await self._call(
            lambda link: link.join(site, epoch=epoch, software_version=software_version, lineage=lineage)
        )

    async def report(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
    ) -> int:
        return await self._call(lambda link: link.report(site, reports, epoch=epoch, seen=seen, start=start))

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        return await self._call(lambda link: link.secrets(site, known=known))

    async def call(self, site: SiteName, topic: str, body: bytes) -> bytes:
        return await self._call(lambda link: link.call(site, topic, body))

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        await self._call(lambda link: link.answer(site, question, answer))

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        await self._life.breathe()
        await anyio.sleep(self._cable.latency())
        central = self._find_central()
        if self._cable.is_lost() or central is None or central.door is None:
            await anyio.sleep(self._cable.chance.uniform(0.1, DIAL_SECONDS))
            raise PeerUnavailable("central does not answer")
        pipe: Pipe[FromCentral] = Pipe(self._cable, patience_seconds=SILENCE_SECONDS)
        assert central.tasks is not None
        start_in(central.name, central.tasks, self._speak, central, site, pipe)
        try:
            async for call in pipe:
                yield call
        finally:
            pipe.tear()

    async def _speak(self, central: Life, site: SiteName, pipe: Pipe[FromCentral]) -> None:
        try:
            async for call in central.door.watch(site):
                if pipe.is_torn:
                    return
                pipe.put(call)
        finally:
            pipe.close(is_told=not central.power_cut)

    async def _call(self, ask: Callable[[CentralLink], Awaitable[T]]) -> T:
        await self._life.breathe()
        answer: _Answer[T] = _Answer()
        start_in("", self._air, self._go, ask, answer)
        with anyio.move_on_after(CALL_SECONDS):
            await answer.is_there.wait()
        await self._life.breathe()
        if not answer.is_there.is_set():
            raise PeerUnavailable("central did not answer in time")
        if isinstance(answer.error, PeerUnavailable | Refused):
            raise answer.error
        if answer.error is not None:
            raise PeerUnavailable(str(answer.error)) from answer.error
        return answer.value  # type: ignore[return-value]

    async def _go(self, ask: Callable[[CentralLink], Awaitable[T]], answer: _Answer[T]) -> None:
        """The way there. Now and then a packet is found again after everybody has given it up."""
        is_late = self._cable.loss > 0 and self._cable.chance.random() < 0.05
        await anyio.sleep(self._cable.chance.uniform(5.0, 40.0) if is_late else self._cable.latency())
        if self._cable.is_lost():
            return
        central = self._find_central()
        if central is None or central.door is None or central.tasks is None:
            self._fail(answer, "central refuses the connection")
            return
        start_in(central.name, central.tasks, self._work, central, ask, answer)

    async def _work(self, central: Life, ask: Callable[[CentralLink], Awaitable[T]], answer: _Answer[T]) -> None:
        is_done = False
        try:
            answer.value = await ask(central.door)
            is_done = central.is_alive
        except HomeportError as error:
            answer.error, is_done = error, central.is_alive
        finally:
            if not is_done and not central.power_cut:
                self._fail(answer, "central hung up")
        if is_done:
            start_in("", self._air, self._return, answer)

    async def _return(self, answer: _Answer[T]) -> None:
        await anyio.sleep(self._cable.latency())
        if not self._cable.is_lost():
            answer.is_there.set()

    def _fail(self, answer: _Answer[T], why: str) -> None:
        answer.error = PeerUnavailable(why)
        answer.is_there.set()
