"""Takes the batches of sites: windows and heartbeats into the database, the newest measurements into memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from homeport.core.telemetry.heartbeats import KEEP_DAYS
from homeport.core.telemetry.windows import MINUTE, TEN_MINUTES
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.retention import retention_now
from homeport.ports import Transaction
from homeport.telemetry.shared.exchange import TelemetryBatch, decode_batch, encode_pace, pace_within_bounds
from homeport.telemetry.shared.latest import Latest
from homeport.vocabulary import SiteName

BATCHES_PER_SECOND: Final = 50.0
"""Of all sites; with more of them, each sends less often."""
STALE_BATCHES: Final = 3
"""How many batches may be missing until what a site sent last is not shown as its newest."""
NODES_MAX: Final = 20_000
"""Whose newest measurements are kept in memory, of all sites; the rest is asked for."""
BYTES_MAX: Final = 10_000_000_000
"""Of each resolution, of all sites."""


class TelemetryIntake:
    def __init__(self, central: CentralPlatform) -> None:
        self._central = central
        self._latest: dict[SiteName, tuple[datetime, Sequence[Latest]]] = {}

    async def take(self, site: SiteName, body: bytes) -> bytes:
        batch = decode_batch(site, body)
        if batch.rows or batch.intervals:
            await self._central.store.write(partial(_put, site, batch))
        self._latest.pop(site, None)
        if sum(len(each) for _, each in self._latest.values()) + len(batch.latest) <= NODES_MAX:
            self._latest[site] = self._central.clock.now(), batch.latest
        return encode_pace(self._pace())

    def _pace(self) -> float:
        return pace_within_bounds(len(self._latest) / BATCHES_PER_SECOND)

    def latest_of(self, site: SiteName) -> Sequence[Latest]:
        at, found = self._latest.get(site, (None, ()))
        if at is None or (self._central.clock.now() - at).total_seconds() > STALE_BATCHES * self._pace():
            self._latest.pop(site, None)
            return ()
        return found

    def latest(self) -> Iterator[Latest]:
        for site in sorted(self._latest):
            yield from self.latest_of(site)


async def trim(central: CentralPlatform) -> None:
    now = await retention_now(central.store, central.clock)
    for each in (MINUTE, TEN_MINUTES):
        before = now - timedelta(seconds=each.keep_seconds)
        await central.store.write(partial(_trim, each.seconds, before))
    await central.store.write(lambda tx: tx.trim_heartbeats(before=now - timedelta(days=KEEP_DAYS)))


def observed_key(site: SiteName) -> str:
    return f"heartbeats_observed_until/{site}"


async def _put(site: SiteName, batch: TelemetryBatch, tx: Transaction) -> None:
    await tx.put_telemetry(batch.rows)
    if batch.intervals:
        await tx.put_heartbeats(site, batch.intervals)
    await tx.set_value(observed_key(site), batch.observed_until.isoformat())


async def _trim(seconds: int, before: datetime, tx: Transaction) -> None:
    await tx.trim_telemetry(seconds, before=before, bytes_max=BYTES_MAX)
