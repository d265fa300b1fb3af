"""Since when central's wall-clock times are comparable: since it started, or since its clock was set."""

from datetime import datetime
from typing import Final

from homeport.lazy_dataclass import dataclass

STEP_SECONDS_MIN: Final = 10.0
"""A clock that differs by less from the monotonic one is being corrected (slewed), not set."""


@dataclass(frozen=True, slots=True)
class ClockSteps:
    since: datetime
    looked_at: datetime
    moment: float
    """`looked_at` on the monotonic clock."""


def listen(before: ClockSteps | None, now: datetime, moment: float) -> ClockSteps:
    """Another reading of both clocks; `before` is the last one."""
    if before is None:
        return ClockSteps(now, now, moment)
    step_seconds = (now - before.looked_at).total_seconds() - (moment - before.moment)
    since = now if abs(step_seconds) >= STEP_SECONDS_MIN else before.since
    return ClockSteps(since, now, moment)
