"""How long a node may be silent before we worry: three missed beats make it stale, six lost."""

from datetime import datetime, timedelta

from homeport.vocabulary import Liveness


def liveness(last_seen: datetime, now: datetime, *, stale_seconds: float, lost_seconds: float) -> Liveness:
    silent = now - last_seen
    if silent >= timedelta(seconds=lost_seconds):
        return Liveness.LOST
    if silent >= timedelta(seconds=stale_seconds):
        return Liveness.STALE
    return Liveness.LIVE
