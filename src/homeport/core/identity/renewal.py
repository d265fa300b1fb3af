"""When a certificate is renewed: at half of its lifetime, so that failed renewals can be retried for as long
again."""

from datetime import datetime
from typing import Final

RENEWAL_FRACTION: Final = 0.5


def renew_at(not_before: datetime, not_after: datetime) -> datetime:
    return not_before + (not_after - not_before) * RENEWAL_FRACTION


def is_due(not_before: datetime, not_after: datetime, now: datetime) -> bool:
    """Also when it is not yet valid: its issuer's clock was ahead, and peers reject it until then."""
    return not not_before <= now < renew_at(not_before, not_after)
