"""How long to wait before the next certificate renewal. Jitter spreads machines that joined together, and machines
that lost the same server at once."""

from datetime import datetime
from typing import Final

from homeport.core.identity.renewal import is_due, renew_at
from homeport.core.values.backoff import BackoffPolicy

SPREAD: Final = 0.1
"""Share of the lifetime over which renewals are spread, before their due time."""
RETRY_SECONDS_FIRST: Final = 0.1
RETRY_SECONDS_MAX: Final = 60.0
RETRY_SHARE: Final = 0.05
"""A retry never waits longer than this share of the lifetime, so that short-lived certificates get enough
attempts."""


def due_in_seconds(not_before: datetime, not_after: datetime, now: datetime, *, chance: float) -> float:
    """`chance` (jitter) is between 0 and 1; two certificates of one age are due at different times."""
    if is_due(not_before, not_after, now):
        return 0.0
    lifetime = (not_after - not_before).total_seconds()
    due = (renew_at(not_before, not_after) - now).total_seconds()
    return max(0.0, due - lifetime * SPREAD * chance)


def retry_in_seconds(not_before: datetime, not_after: datetime, *, failures: int, chance: float) -> float:
    """`failures` counts consecutive failed attempts."""
    lifetime = (not_after - not_before).total_seconds()
    longest = min(RETRY_SECONDS_MAX, max(0.2, lifetime * RETRY_SHARE))
    return BackoffPolicy(RETRY_SECONDS_FIRST, longest).delay_seconds(failures + 1, chance=chance)
