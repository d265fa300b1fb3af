"""How long to wait before the next renewal. Chance spreads those who joined together, and those who all lost the same
server at once."""

from datetime import datetime
from typing import Final

from homeport.core.identity.renewal import renew_at

SPREAD: Final = 0.1
"""Share of the lifetime over which renewals are spread, before their due time."""
RETRY_SECONDS_MAX: Final = 60.0
RETRY_SHARE: Final = 0.05
"""A retry never waits longer than this share of the lifetime, so that short lives get enough attempts too."""


def wait_seconds(
    not_before: datetime, not_after: datetime, now: datetime, *, failures: int = 0, chance: float
) -> float:
    """`failures` counts attempts in a row that came to nothing; `chance` is between 0 and 1."""
    lifetime = (not_after - not_before).total_seconds()
    if failures == 0:
        due = (renew_at(not_before, not_after) - now).total_seconds()
        return max(0.0, due - lifetime * SPREAD * chance)
    longest = min(RETRY_SECONDS_MAX, max(0.2, lifetime * RETRY_SHARE))
    return min(longest, 0.1 * 2.0 ** min(failures, 20)) * (0.5 + chance / 2)
