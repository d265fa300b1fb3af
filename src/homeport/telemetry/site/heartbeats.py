"""Records when each node of a site was live, stale or lost. While the site itself does not run, there is a gap."""

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from homeport.core.telemetry.heartbeats import INTERVALS_MAX, KEEP_DAYS, Interval, interrupted, observe, timeline
from homeport.fleet.shared.retention import retention_now
from homeport.fleet.site.platform import SitePlatform
from homeport.ports import Transaction
from homeport.vocabulary import NodeId, SiteName

OBSERVED: Final = "heartbeats_observed_until"
"""The key of the last time the site looked, as stored."""
OBSERVED_SECONDS: Final = 30.0
"""How often that is stored; a crash makes the gap so much longer at most."""
UNSENT_MAX: Final = 20_000


class HeartbeatRecorder:
    def __init__(self, site: SitePlatform) -> None:
        self._site = site
        self._open: dict[NodeId, Interval] | None = None
        self._stored_at: datetime | None = None
        self.unsent: deque[Interval] = deque(maxlen=UNSENT_MAX)
        """Intervals that central has not got yet."""

    async def look(self) -> None:
        now = self._site.clock.now()
        if self._open is None:
            await self._begin()
            self._open = {}
        seen = {node_id: node.liveness for node_id, node in self._site.nodes().items()}
        changed = observe(self._open, seen, now)
        is_due = self._stored_at is None or (now - self._stored_at).total_seconds() >= OBSERVED_SECONDS
        if not changed and not is_due:
            return
        await self._site.store.write(partial(_put, self._site.site, changed, now))
        self._stored_at = now
        self.unsent.extend(changed)
        for each in changed:  # What ends comes before what begins.
            if each.end is None:
                self._open[each.node_id] = each
            else:
                self._open.pop(each.node_id, None)

    async def _begin(self) -> None:
        """Ends what the previous run left open."""
        async with self._site.store.read() as reader:
            left = await reader.open_heartbeats(self._site.site)
            stored = await reader.value_as(OBSERVED, datetime.fromisoformat)
        if not left:
            return
        until = self._site.clock.now() if stored is None else stored
        ended = interrupted(left, until)
        await self._site.store.write(lambda tx: tx.put_heartbeats(self._site.site, ended))
        self.unsent.extend(ended)

    async def timeline(self, node_id: NodeId, start: datetime, end: datetime) -> Sequence[Interval]:
        now = self._site.clock.now()
        async with self._site.store.read() as reader:
            found = await reader.heartbeats(self._site.site, node_id, start=start, end=end, limit=INTERVALS_MAX)
        return timeline(found, start=start, end=min(end, now), until=now)

    async def trim(self) -> None:
        before = await retention_now(self._site.store, self._site.clock) - timedelta(days=KEEP_DAYS)
        await self._site.store.write(lambda tx: tx.trim_heartbeats(before=before))


async def _put(site: SiteName, changed: Sequence[Interval], now: datetime, tx: Transaction) -> None:
    await tx.put_heartbeats(site, changed)
    await tx.set_value(OBSERVED, now.isoformat())
