"""The site's end of its outbox: reports are queued in the transaction of the change they describe, and the queue is
bounded.

Not safe for two concurrent decisions; the conductor's lock prevents that.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import anyio

from homeport.core.model.report import Report
from homeport.core.tracing import TRACEPARENT
from homeport.errors import TransientError
from homeport.fleet.site.reports.resync import (
    FULL,
    INSTANCE_BYTES,
    OUTBOX_BYTES_MAX,
    QUEUED_AT,
    RESTORED,
    Encode,
    restated,
    resync,
)
from homeport.fleet.site.state import SiteState
from homeport.log import get_log
from homeport.ports import Clock, Store, Transaction
from homeport.vocabulary import DeploymentId

log = get_log(__name__)

T = TypeVar("T")

WEIGH_BYTES: Final = 250_000
"""How many bytes are queued before the outbox is measured again, which takes milliseconds when it is long."""


class ReportQueue:
    def __init__(
        self, memory: SiteState, store: Store, clock: Clock, encode: Encode, *, bytes_max: int = OUTBOX_BYTES_MAX
    ) -> None:
        self._memory = memory
        self._store = store
        self._clock = clock
        self._encode = encode
        self._bytes_max = bytes_max
        self._unweighed_bytes = WEIGH_BYTES
        self._present_bytes = 0
        """The size of the last full resync."""
        self.grew = anyio.Event()
        """Set whenever a report was queued; a waiter replaces it by a new event."""

    async def put(
        self, tx: Transaction, reports: Sequence[Report], contexts: Mapping[int, str] | None = None
    ) -> None:
        """`contexts` are the traces of some of the reports, by the report's `id()`."""
        marks = {key: {TRACEPARENT: context} for key, context in (contexts or {}).items()}
        since = {QUEUED_AT: self._clock.now().isoformat()}
        bodies = [{**self._encode(report), **since, **marks.get(id(report), {})} for report in reports]
        self._unweighed_bytes += sum(len(str(body)) for body in bodies)
        await tx.enqueue(bodies)

    async def commit(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Only durable reports may be forwarded, so the outbox is announced after the commit."""
        written = await self._store.write(work)
        self.grew.set()
        return written

    async def resync(self, why: str) -> None:
        """Replaces the queued reports by a full resync."""
        now = self._clock.now()
        lost = await self.commit(lambda tx: resync(tx, self._memory, self._encode, why=why, now=now))
        async with self._store.read() as reader:
            self._present_bytes = await reader.outbox_bytes()
        self._unweighed_bytes = 0
        log.warning("outbox reset, full resync queued", why=why, reports_lost=lost.reports, since=lost.since)

    async def restate(self, deployment_ids: Collection[DeploymentId]) -> None:
        reports = restated(self._memory, deployment_ids, self._clock.now())
        await self.commit(lambda tx: self.put(tx, reports))
        log.info("deployments restated", deployments=len(deployment_ids), reports=len(reports))

    async def start_epoch(self, epoch: str, values: Mapping[str, str]) -> None:
        """A new epoch, which starts with a full resync. `values` are written in the same transaction."""
        now = self._clock.now()

        async def work(tx: Transaction) -> None:
            await tx.set_value("epoch", epoch)
            for name, value in values.items():
                await tx.set_value(name, value)
            await resync(tx, self._memory, self._encode, why=RESTORED, now=now)

        await self.commit(work)
        log.warning("outbox behind central, full resync queued", epoch=epoch)

    async def keep_bounded(self) -> None:
        """Called between two decisions, when memory and store agree."""
        if self._unweighed_bytes < WEIGH_BYTES:
            return
        try:
            async with self._store.read() as reader:
                waiting_bytes = await reader.outbox_bytes()
            self._unweighed_bytes = 0
            present_bytes = max(self._present_bytes, INSTANCE_BYTES * len(self._memory.instances))
            if waiting_bytes > max(self._bytes_max, 2 * present_bytes):
                await self.resync(FULL)
        except TransientError as error:
            log.warning("outbox size could not be measured", why=str(error))
