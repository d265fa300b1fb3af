"""What time it is for deleting by age; see `core.retention`. The record is kept in the store, so that it outlives a
restart."""

import json
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from homeport.core.retention import SeenClock, look
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock, Store

log = get_log(__name__)

KEY: Final = "retention_clock"
PROCESS: Final = uuid4().hex
"""The monotonic clock means nothing to another process."""
RECORD_SECONDS: Final = 3600.0
"""How often a look is recorded while nothing unusual is seen."""


async def retention_now(store: Store, clock: Clock) -> datetime:
    """At most what the clock shows."""
    now, monotonic = clock.now(), clock.monotonic()
    async with store.read() as reader:
        before = await reader.value_as(KEY, _load)
    is_ours = before is not None and before.process == PROCESS and before.monotonic <= monotonic
    elapsed = monotonic - before.monotonic if before is not None and is_ours else 0.0
    after = look(None if before is None else before.clock, now, timedelta(seconds=elapsed))
    was_believed = before is None or before.clock.is_believed
    if not is_ours or elapsed >= RECORD_SECONDS or after.is_believed != was_believed:
        await store.write(lambda tx: tx.set_value(KEY, _dump(_Look(after, PROCESS, monotonic))))
        if not after.is_believed:
            log.warning(
                "clock has leapt, nothing is deleted by age", shows=now.isoformat(), believed=str(after.believed)
            )
    return min(now, after.believed)


@dataclass(frozen=True, slots=True)
class _Look:
    clock: SeenClock
    process: str
    monotonic: float


def _load(text: str) -> _Look:
    body = json.loads(text)
    believed, seen = (datetime.fromisoformat(body[name]) for name in ("believed", "seen"))
    steady = timedelta(seconds=float(body["steady_seconds"]))
    return _Look(SeenClock(believed, seen, steady), str(body["process"]), float(body["monotonic"]))


def _dump(given: _Look) -> str:
    return json.dumps(
        {
            "believed": given.clock.believed.isoformat(),
            "seen": given.clock.seen.isoformat(),
            "steady_seconds": given.clock.steady.total_seconds(),
            "process": given.process,
            "monotonic": given.monotonic,
        }
    )
