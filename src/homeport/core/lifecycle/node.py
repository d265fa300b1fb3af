"""How long a node may be silent before we worry: three missed beats make it stale, six lost."""

from homeport.vocabulary import Liveness


def liveness(silent_seconds: float, *, stale_seconds: float, lost_seconds: float) -> Liveness:
    if silent_seconds >= lost_seconds:
        return Liveness.LOST
    if silent_seconds >= stale_seconds:
        return Liveness.STALE
    return Liveness.LIVE
