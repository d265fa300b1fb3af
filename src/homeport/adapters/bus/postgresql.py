"""`ports.Bus` over PostgreSQL's LISTEN and NOTIFY, on its own connection.

Subscribers of this process are called directly, those of others through the database. A message that is too long for
a notification is stored in a table, and the notification names it. A lost connection is reopened with backoff, and
every subscriber is notified of the gap; what was published in between is sent then.
"""

import json
import random
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any, Final

import anyio
from sqlalchemy import text

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.bus.notifications import BYTES_MAX, CHANNEL, encode
from homeport.adapters.store.databases.async_engine import AsyncConnection, AsyncEngine
from homeport.adapters.store.databases.engine import create_shared_engine, parse_address
from homeport.adapters.store.databases.errors import translated
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import HomeportError, TransientError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Handler, Message

WAITING_MAX: Final = 1_000
"""The maximum queue of messages to send or deliver; beyond that the oldest is dropped, which counts as a gap."""
PING_SECONDS: Final = 5.0
"""How often an idle connection is pinged, so that a dead one is detected."""
RECONNECT: Final = BackoffPolicy(first_seconds=0.1, max_seconds=5.0)

_NOTIFY: Final = text("SELECT pg_notify(:channel, :payload)")
_PUT: Final = text("INSERT INTO bus_messages (id, body, at) VALUES (:id, :body, now())")
_FORGET: Final = text("DELETE FROM bus_messages WHERE at < now() - interval '1 minute'")
_GET: Final = text("SELECT body FROM bus_messages WHERE id = :id")
_PING: Final = text("SELECT 1")

log = get_log("homeport.bus")


@asynccontextmanager
async def open_bus(url: str) -> AsyncIterator["PostgresBus"]:
    """Raises TransientError when there is no connection. A connection lost later is retried forever."""
    engine = create_shared_engine(parse_address(url), connections_max=1)
    bus = PostgresBus(engine)
    failure: Exception | None = None
    try:
        async with bus.listening():
            pass
        async with anyio.create_task_group() as tasks:
            await tasks.start(bus.run)
            try:
                yield bus
            except Exception as error:  # noqa: BLE001 - raised again below, without its exception group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        with anyio.move_on_after(5, shield=True):
            await engine.dispose()


@dataclass(slots=True)
class _Asked:
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: Message | None = None


class PostgresBus:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._local = InProcessBus()
        self._me = uuid.uuid4().hex
        self._asked: dict[str, _Asked] = {}
        self._outgoing: deque[dict[str, Any]] = deque(maxlen=WAITING_MAX)
        self._incoming: deque[str] = deque(maxlen=WAITING_MAX)
        self._work = anyio.Event()
        self._is_lost = False

    # --- for callers ----------------------------------------------------------------------------------------

    def publish(self, topic: str, message: Message) -> None:
        self._local.publish(topic, message)
        self._send({"topic": topic, "body": dict(message)})

    async def request(self, topic: str, message: Message, *, seconds: float) -> Message | None:
        number, asked = uuid.uuid4().hex, _Asked()
        self._asked[number] = asked
        try:
            self._send({"topic": topic, "body": dict(message), "question": number})
            answer = self._local.deliver(topic, message)
            if answer is not None:
                return answer
            with anyio.move_on_after(seconds):
                await asked.done.wait()
        finally:
            del self._asked[number]
        return asked.answer

    def subscribe(
        self, topic: str, handler: Handler, *, on_gap: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        return self._local.subscribe(topic, handler, on_gap=on_gap)

    # --- the connection -------------------------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        failures, is_first = 0, True
        while True:
            try:
                async with self.listening() as connection:
                    if is_first:
                        task_status.started()
                    else:
                        self._local.tell_gap()
                    failures, is_first = 0, False
                    await self._serve(connection)
            except (HomeportError, TimeoutError) as error:
                log.warning("bus connection lost", why=str(error))
            failures += 1
            await anyio.sleep(RECONNECT.delay_seconds(failures, chance=random.random()))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[AsyncConnection]:
        with translated():
            connection = await self._engine.connect()
        try:
            with translated():
                driver: Any = await connection.driver()
                await driver.add_listener(CHANNEL, self._heard)
                self._is_lost = False
                driver.add_termination_listener(self._lost)
            yield connection
        finally:
            with anyio.move_on_after(5, shield=True):
                await connection.invalidate()
                await connection.close()

    async def _serve(self, connection: AsyncConnection) -> None:
        """Sends and delivers until the connection fails."""
        while True:
            self._work = anyio.Event()
            while self._outgoing or self._incoming:
                if self._incoming:
                    await self._receive(connection, self._incoming.popleft())
                else:
                    await self._transmit(connection, self._outgoing[0])
                    self._outgoing.popleft()
            with anyio.move_on_after(PING_SECONDS):
                await self._work.wait()
            if self._is_lost:
                raise TransientError("PostgreSQL has ended the connection.")
            if not self._work.is_set():
                await self._execute(connection, _PING, {})

    def _lost(self, _connection: Any) -> None:
        self._is_lost = True
        self._work.set()

    def _heard(self, _connection: Any, _process: int, _channel: str, payload: str) -> None:
        if len(self._incoming) == WAITING_MAX:
            self._local.tell_gap()
        self._incoming.append(payload)
        self._work.set()

    def _send(self, content: dict[str, Any]) -> None:
        if len(self._outgoing) == WAITING_MAX:
            log.warning("bus message dropped, queue full")
        self._outgoing.append({"from": self._me, **content})
        self._work.set()

    async def _transmit(self, connection: AsyncConnection, content: dict[str, Any]) -> None:
        payload = encode(content)
        if len(payload) > BYTES_MAX:
            number = uuid.uuid4().hex
            await self._execute(connection, _FORGET, {})
            await self._execute(connection, _PUT, {"id": number, "body": payload})
            payload = encode({"from": self._me, "stored": number})
        await self._execute(connection, _NOTIFY, {"channel": CHANNEL, "payload": payload})

    async def _receive(self, connection: AsyncConnection, payload: str) -> None:
        content = _content(payload)
        if content.get("from") == self._me:
            return
        if "stored" in content:
            found = await self._execute(connection, _GET, {"id": str(content["stored"])})
            content = {} if found is None else _content(str(found))
        body = content.get("body")
        if not isinstance(body, dict):
            return
        if "answers" in content:
            asked = self._asked.get(str(content["answers"]))
            if asked is not None and not asked.done.is_set():
                asked.answer = body
                asked.done.set()
            return
        answer = self._local.deliver(str(content.get("topic")), body)
        if answer is not None and "question" in content:
            self._send({"answers": content["question"], "body": dict(answer)})

    async def _execute(self, connection: AsyncConnection, statement: Any, parameters: dict[str, Any]) -> Any:
        with translated(), anyio.fail_after(PING_SECONDS):
            result = await connection.execute(statement, parameters)
            return result.scalar() if result.returns_rows else None


def _content(payload: str) -> dict[str, Any]:
    """Content that only another version understands is ignored."""
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        log.warning("bus message malformed", payload=payload[:200])
        return {}
    return content
