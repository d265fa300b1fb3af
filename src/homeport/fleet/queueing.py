"""The site's end of its outbox: reports go in with what they tell of, in one transaction, and never grow without
bound.

Not safe to use from two decisions at once; the conductor's turn sees to that.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import anyio
import structlog

from homeport.core.model.report import Report
from homeport.errors import TransientError
from homeport.fleet.memory import Memory
from homeport.fleet.restating import FULL, INSTANCE_BYTES, OUTBOX_BYTES_MAX, QUEUED_AT, Encode, restate
from homeport.fleet.tracing import TRACEPARENT
from homeport.ports import Clock, Store, Transaction

log = structlog.get_logger(__name__)

T = TypeVar("T")

WEIGH_BYTES: Final = 250_000
"""How much is put into the outbox before it is weighed again, for that takes milliseconds when it is long."""


class ReportQueue:
    def __init__(
        self, memory: Memory, store: Store, clock: Clock, encode: Encode, *, bytes_max: int = OUTBOX_BYTES_MAX
    ) -> None:
        self._memory = memory
        self._store = store
        self._clock = clock
        self._encode = encode
        self._bytes_max = bytes_max
        self._unweighed_bytes = WEIGH_BYTES
        self._present_bytes = 0
        """What saying everything anew took, when that last happened."""
        self.grew = anyio.Event()
        """Set whenever a report was queued; whoever waits on it puts a fresh one in its place."""

    async def put(
        self, tx: Transaction, reports: Sequence[Report], contexts: Mapping[int, str] | None = None
    ) -> None:
        """`contexts` are the traces that some of the reports belong to, by the report's `id()`."""
        marks = {key: {TRACEPARENT: context} for key, context in (contexts or {}).items()}
        since = {QUEUED_AT: self._clock.now().isoformat()}
        bodies = [{**self._encode(report), **since, **marks.get(id(report), {})} for report in reports]
        self._unweighed_bytes += sum(len(str(body)) for body in bodies)
        await tx.enqueue(bodies)

    async def commit(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Only what is durable may be forwarded, so the outbox is announced after the commit."""
        written = await self._store.write(work)
        self.grew.set()
        return written

    async def restate(self, why: str) -> None:
        """Tells central anew how everything stands, instead of what waits to be told."""
        now = self._clock.now()
        lost = await self.commit(lambda tx: restate(tx, self._memory, self._encode, why=why, now=now))
        async with self._store.read() as reader:
            self._present_bytes = await reader.outbox_bytes()
        self._unweighed_bytes = 0
        log.warning("everything is told anew", why=why, reports_lost=lost.reports, since=lost.since)

    async def keep_bounded(self) -> None:
        """Between two decisions, when what is remembered is what is durable."""
        if self._unweighed_bytes < WEIGH_BYTES:
            return
        try:
            async with self._store.read() as reader:
                waiting_bytes = await reader.outbox_bytes()
            self._unweighed_bytes = 0
            present_bytes = max(self._present_bytes, INSTANCE_BYTES * len(self._memory.instances))
            if waiting_bytes > max(self._bytes_max, 2 * present_bytes):
                await self.restate(FULL)
        except TransientError as error:
            log.warning("the outbox was not weighed", why=str(error))
