"""The time by which the age of what is kept is judged.

A wall clock may leap by years: a flat battery, a wrong time server, a typing error. Ages judged by it would delete
all logs, events and audit entries at once. So time is believed to pass as the role runs; a leap that its running does
not explain counts after the clock has shown the new time for a day. Until then nothing is deleted by age; bounds of
count and size hold meanwhile. A clock that is set back is accepted immediately: it makes everything younger.
"""

from datetime import datetime, timedelta
from typing import Final

from homeport.lazy_dataclass import dataclass

LEAP_MAX: Final = timedelta(days=7)
"""A role may have been off for so long. A leap of the clock by as much deletes a week more than it should."""
CONFIRMED_AFTER: Final = timedelta(days=1)
STEADY_WITHIN: Final = timedelta(hours=1)
"""Clocks are corrected, and processes suspended; this is no new leap."""


@dataclass(frozen=True, slots=True)
class SeenClock:
    believed: datetime
    seen: datetime
    """What the clock showed at the last look."""
    steady: timedelta = timedelta(0)
    """For how long it has shown a time that is not believed yet."""

    @property
    def is_believed(self) -> bool:
        return self.seen <= self.believed


def look(before: SeenClock | None, now: datetime, elapsed: timedelta) -> SeenClock:
    """`elapsed` is how long the role has run since the look before; nothing for the first look of a process."""
    if before is None or now <= before.believed + LEAP_MAX + elapsed:
        return SeenClock(now, now)
    is_steady = abs(now - before.seen - elapsed) <= STEADY_WITHIN
    steady = before.steady + elapsed if is_steady else timedelta(0)
    if steady >= CONFIRMED_AFTER:
        return SeenClock(now, now)
    return SeenClock(before.believed + elapsed, now, steady)
