"""Sends central a batch as often as it asks for one. What was not acknowledged is sent again; while central is away,
the newest windows wait, and the older ones stay at the site alone."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

import anyio

from homeport.core.telemetry.records import TelemetryRow
from homeport.errors import PermanentError, TransientError
from homeport.fleet.site.platform import SitePlatform
from homeport.log import get_log
from homeport.telemetry.shared.exchange import (
    INTERVALS_SENT_MAX,
    PACE_SECONDS_MAX,
    PACE_SECONDS_MIN,
    ROWS_MAX,
    TOPIC,
    TelemetryBatch,
    decode_pace,
    encode_batch,
)
from homeport.telemetry.site.heartbeats import HeartbeatRecorder
from homeport.telemetry.site.keeper import TelemetryKeeper

log = get_log("homeport.telemetry")

INSTANT: Final = timedelta(milliseconds=1)


class Sender:
    def __init__(self, site: SitePlatform, keeper: TelemetryKeeper, heartbeats: HeartbeatRecorder) -> None:
        self._site = site
        self._keeper = keeper
        self._heartbeats = heartbeats
        self._is_announced = False
        self._pace_seconds = PACE_SECONDS_MIN

    async def run(self) -> None:
        while True:
            try:
                await self.send()
            except TransientError as error:
                log.debug("telemetry not sent", error=str(error))
            await anyio.sleep(self._pace_seconds)

    async def send(self) -> None:
        """Raises PeerUnavailable while central is away."""
        central = self._site.central
        if central is None:
            return
        rows, taken = await self._rows()
        intervals = tuple(islice(self._heartbeats.unsent, INTERVALS_SENT_MAX))
        batch = TelemetryBatch(self._keeper.latest(), rows, intervals, self._site.clock.now())
        try:
            answer = await central.call(self._site.site, TOPIC, encode_batch(batch))
        except PermanentError as error:
            # It would be refused again: a central of another release, most likely.
            if not self._is_announced:
                log.warning("telemetry refused by central", error=str(error))
            self._is_announced, self._pace_seconds = True, PACE_SECONDS_MAX
        else:
            self._is_announced, self._pace_seconds = False, decode_pace(answer)
        for _ in range(taken):
            self._keeper.unsent.popleft()
        for _ in intervals:
            self._heartbeats.unsent.popleft()

    async def _rows(self) -> tuple[Sequence[TelemetryRow], int]:
        """The next windows, and how many of the queue they are: one that was trimmed meanwhile is passed over."""
        keys, rows = list(islice(self._keeper.unsent, ROWS_MAX)), list[TelemetryRow]()
        async with self._site.store.read() as reader:
            for node_id, resolution, start in keys:
                found = await reader.telemetry(self._site.site, node_id, resolution, start=start, end=start + INSTANT)
                rows += found[:1]
        return rows, len(keys)
