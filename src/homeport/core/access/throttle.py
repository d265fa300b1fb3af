"""Rate limit for failed authentication. Pure: the caller passes the time, and memory is bounded.

Every failed attempt counts against its source. After several in a minute the source has to wait, each time twice as
long. A success is never delayed: a valid token works from anywhere, so that an attacker cannot lock out a user by
failing in the user's place.
"""

import ipaddress
from collections import OrderedDict
from typing import Final

from homeport.core.values.backoff import BackoffPolicy
from homeport.lazy_dataclass import dataclass

FAILURES_MAX: Final = 10
WINDOW_SECONDS: Final = 60.0
PENALTY_SECONDS_MAX: Final = 300.0
KEYS_MAX: Final = 10_000


@dataclass(slots=True)
class _Record:
    count: int
    since: float
    blocked_until: float = 0.0
    penalties: int = 0


class Throttle:
    """Failed attempts by key: an address, or the id of a token that was tried with a wrong secret."""

    def __init__(
        self,
        *,
        failures_max: int = FAILURES_MAX,
        window_seconds: float = WINDOW_SECONDS,
        penalty_seconds_max: float = PENALTY_SECONDS_MAX,
        keys_max: int = KEYS_MAX,
    ) -> None:
        self._failures_max = failures_max
        self._window_seconds = window_seconds
        self._penalty = BackoffPolicy(first_seconds=1.0, max_seconds=penalty_seconds_max)
        self._keys_max = keys_max
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def failed(self, key: str, now: float) -> float:
        """Counts one failure. Returns the seconds until the next attempt is accepted; 0 for no wait."""
        record = self._records.pop(key, None)
        if record is None or self._is_over(record, now):
            record = _Record(0, now)
        self._records[key] = record
        while len(self._records) > self._keys_max:
            self._records.popitem(last=False)
        if now < record.blocked_until:
            # Attempts during the wait do not extend it.
            return record.blocked_until - now
        record.count += 1
        if record.count <= self._failures_max:
            return 0.0
        record.penalties += 1
        seconds = self._penalty.ceiling_seconds(record.penalties)
        record.blocked_until = now + seconds
        return seconds

    def _is_over(self, record: _Record, now: float) -> bool:
        return now - max(record.since, record.blocked_until) > self._window_seconds


def address_key(address: str) -> str:
    """One key for all addresses that one machine can choose: an IPv6 /64 network is usually one machine."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "address:?"
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if isinstance(parsed, ipaddress.IPv6Address):
        return f"address:{ipaddress.ip_network((parsed, 64), strict=False)}"
    return f"address:{parsed}"
