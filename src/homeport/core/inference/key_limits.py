"""How often one key may submit: a rate with a burst, as one number for each key (the moment until which its
submissions are paid for). Pure."""

from typing import Final

from homeport.lazy_dataclass import dataclass

BURST_SECONDS: Final = 10.0
"""A key that was silent may submit what its rate allows in this time at once."""


@dataclass(frozen=True, slots=True)
class KeyRate:
    per_minute: int
    """0: any."""

    def wait_seconds(self, paid_until: float, now: float) -> float:
        """0 where it may submit now."""
        if not self.per_minute:
            return 0.0
        return max(0.0, paid_until + self._each - now - self._burst)

    def paid(self, paid_until: float, now: float) -> float:
        """After one more submission."""
        return max(paid_until, now) + self._each if self.per_minute else 0.0

    @property
    def _each(self) -> float:
        return 60.0 / self.per_minute

    @property
    def _burst(self) -> float:
        return max(BURST_SECONDS, self._each)
