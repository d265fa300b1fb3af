"""Retry backoff: exponential, bounded and jittered. The only backoff formula of the code base.

Pure: the caller counts its failures and passes the randomness. Where a delay must be the same each time it is
computed, `chance_of` derives it from a name.
"""

from typing import Final
from zlib import crc32

from homeport.lazy_dataclass import dataclass

_DOUBLINGS_MAX: Final = 30
"""Keeps the power small; every policy has reached its maximum long before."""


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    first_seconds: float
    max_seconds: float

    def ceiling_seconds(self, failures: int) -> float:
        """The longest delay after this many consecutive failures: `first_seconds` after the first, then doubling."""
        doublings = min(max(failures - 1, 0), _DOUBLINGS_MAX)
        return min(self.max_seconds, self.first_seconds * 2.0**doublings)

    def delay_seconds(self, failures: int, *, chance: float) -> float:
        """Between half of the ceiling and all of it. `chance`, from 0 to 1, spreads callers that failed together."""
        return self.ceiling_seconds(failures) * (0.5 + chance / 2)


def chance_of(seed: str) -> float:
    """A pseudo-random number from 0 to 1, always the same for one seed."""
    return crc32(seed.encode()) / 2**32
