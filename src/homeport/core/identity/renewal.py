"""When a certificate is renewed: at half of its life, so that a failed renewal has as long again to be repeated."""

from datetime import datetime
from typing import Final

RENEWAL_FRACTION: Final = 0.5


def renew_at(not_before: datetime, not_after: datetime) -> datetime:
    return not_before + (not_after - not_before) * RENEWAL_FRACTION


def is_due(not_before: datetime, not_after: datetime, now: datetime) -> bool:
    """Also when it begins after now: whoever made it had a clock that was ahead, and nobody believes it yet."""
    return not not_before <= now < renew_at(not_before, not_after)
