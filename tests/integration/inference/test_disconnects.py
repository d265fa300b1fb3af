"""A client that leaves frees its place within a second, on every route: while it waits, before the first token and in
the middle of a stream. The engines here never finish, so that only the cancellation can free a slot."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from homeport.central.app import CentralApp
from homeport.inference.pools.registry import PoolRegistry
from homeport.inference.tasks.scheduler import Scheduler
from tests.integration.inference.conftest import TASK, bind
from tests.support.engines_on_wire import Break, BrokenEngine, serve_broken
from tests.support.local import local_key
from tests.support.running_central import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
FREED_SECONDS_MAX = 1.0
LOOKS_MAX = 3
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
OPENAI: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True}),
    ("/v1/completions", {"model": "m", "prompt": "Hello", "stream": True}),
    ("/v1/embeddings", {"model": "m", "input": "Hello"}),
]


@dataclass
class Stand:
    central: CentralApp
    client: Client
    engine: BrokenEngine

    @property
    def leases(self) -> int:
        pools = self.central.parts.inference.pools
        assert isinstance(pools, PoolRegistry)
        return sum(each.leases for each in pools.replicas("default"))

    @property
    def waiting(self) -> int:
        demand = self.central.parts.inference.demand
        assert isinstance(demand, Scheduler)
        return demand.depth("default")

    async def frees(self, come: "Come", what: str, *, is_queued: bool = False) -> int:
        """A client comes and goes; says how often: a machine that stalls may spoil one look, but not three."""
        seen: list[float] = []
        while len(seen) < LOOKS_MAX:
            seen.append(await self._leave(await come(), is_queued=is_queued, what=what))
            if seen[-1] < FREED_SECONDS_MAX:
                return len(seen)
        raise AssertionError(f"{what}: its place was free after {', '.join(f'{each:.2f}' for each in seen)} s")

    async def _leave(self, writer: asyncio.StreamWriter, *, is_queued: bool, what: str) -> float:
        """How long its place stays taken, without the time in which the machine let nothing run here."""
        async with _stalls() as stalled:
            began = time.monotonic()
            writer.transport.abort()
            if is_queued:
                await eventually(lambda: self.waiting == 0, what=f"{what} to leave the queue")
            else:
                await eventually(lambda: self.leases == 0 and self.engine.running == 0, what=f"the slot of {what}")
            return float(time.monotonic() - began - stalled())

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> "Pair":
        """A request on a connection of its own."""
        address = urlsplit(self.client.url)
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
            f"Authorization: {local_key(self.central)['Authorization']}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(head.encode() + content)
        return reader, writer

    async def follow_new_task(self) -> "Pair":
        task = {**TASK, "task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}
        answer = await self.client.post("/v2/tasks", {**task, "model_ref": "m", "engine": "openai"})
        assert answer.status == 202, answer.body
        return await self.ask("GET", answer.body["streams"]["sse"])


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Ask = Callable[[], Awaitable[Pair]]
Come = Callable[[], Awaitable[asyncio.StreamWriter]]


@asynccontextmanager
async def _stalls() -> AsyncIterator[Callable[[], float]]:
    """How long, so far, this process was not given the processor."""
    total = 0.0

    async def tick() -> None:
        nonlocal total
        while True:
            began = time.monotonic()
            await anyio.sleep(0.01)
            total += max(0.0, time.monotonic() - began - 0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        try:
            yield lambda: total
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def stand(empty: tuple[CentralApp, Client], how: Break) -> AsyncIterator[Stand]:
    """One engine with one slot."""
    central, client = empty
    async with serve_broken(how) as engine:
        await bind(client, central, engine.handoff())
        yield Stand(central, client, engine)


async def test_before_the_first_token(empty: tuple[CentralApp, Client]) -> None:
    async with stand(empty, Break.HANGS) as here:

        async def come(ask: Ask) -> asyncio.StreamWriter:
            _, writer = await ask()
            await eventually(lambda: here.engine.running == 1, what="the request to reach the engine")
            return writer

        for path, body in OPENAI:
            await here.frees(partial(come, partial(here.ask, "POST", path, body)), f"{path} {body}")
        await here.frees(partial(come, here.follow_new_task), "the task")


async def test_in_the_middle_of_a_stream(empty: tuple[CentralApp, Client]) -> None:
    async with stand(empty, Break.STALLS_IN_THE_MIDDLE) as here:

        async def come(ask: Ask, seen: bytes) -> asyncio.StreamWriter:
            reader, writer = await ask()
            await reader.readuntil(seen)
            return writer

        asked = await here.frees(partial(come, here.follow_new_task, b"event: token"), "the task")
        for path, body in OPENAI:
            if body.get("stream"):
                ask = partial(here.ask, "POST", path, body)
                asked += await here.frees(partial(come, ask, b'"content":"a"'), path)

        async def is_counted() -> bool:
            """Who hangs up has used what was generated until then: a token each, and the task's."""
            rows = (await here.client.get("/v2/usage")).body["usage"]
            return bool(sum(row["requests"] for row in rows) == asked <= sum(row["tokens_out"] for row in rows))

        await eventually(is_counted, what="usage to be written")


async def test_while_it_waits_in_the_queue(empty: tuple[CentralApp, Client]) -> None:
    async with stand(empty, Break.HANGS) as here:

        async def come(ask: Ask) -> asyncio.StreamWriter:
            _, writer = await ask()
            await eventually(lambda: here.waiting == 1, what="the request to wait")
            return writer

        _, holder = await here.ask("POST", *OPENAI[0])
        await eventually(lambda: here.engine.running == 1, what="the slot to be taken")
        for path, body in OPENAI:
            ask = partial(here.ask, "POST", path, body)
            await here.frees(partial(come, ask), f"{path} {body}", is_queued=True)

        async def follow() -> asyncio.StreamWriter:
            reader, writer = await here.follow_new_task()
            await reader.readuntil(b"text/event-stream")
            assert here.waiting == 1
            return writer

        await here.frees(follow, "the task", is_queued=True)
        assert here.engine.asked == 1
        holder.transport.abort()
        await eventually(lambda: here.leases == 0 and here.engine.running == 0, what="the slot of its holder")
