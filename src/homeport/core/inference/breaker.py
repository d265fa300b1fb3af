"""The circuit breaker of one replica: after repeated failures it gets no tasks for a while, then one on trial."""

from dataclasses import replace
from enum import StrEnum
from typing import Final

from homeport.core.values.backoff import BackoffPolicy
from homeport.lazy_dataclass import dataclass

FAILURES_MAX: Final = 5
OPEN: Final = BackoffPolicy(first_seconds=5.0, max_seconds=300.0)
"""Short at first, since an engine that restarts is back within seconds; doubles while trials fail."""


class Circuit(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Breaker:
    failures: int = 0
    opened_at: float | None = None
    trials: int = 0
    """How many have failed since it opened."""
    on_trial: bool = False

    @property
    def seconds(self) -> float:
        """How long it stays open."""
        return OPEN.ceiling_seconds(self.trials + 1)

    def circuit(self, now: float) -> Circuit:
        if self.opened_at is None:
            return Circuit.CLOSED
        return Circuit.HALF_OPEN if now - self.opened_at >= self.seconds else Circuit.OPEN

    def lets_through(self, now: float) -> bool:
        if self.opened_at is None:
            return True
        circuit = self.circuit(now)
        return circuit is Circuit.CLOSED or (circuit is Circuit.HALF_OPEN and not self.on_trial)

    def started(self, now: float) -> "Breaker":
        if self.opened_at is None:
            return self
        return replace(self, on_trial=True) if self.circuit(now) is Circuit.HALF_OPEN else self

    def succeeded(self) -> "Breaker":
        return self if self is CLOSED else CLOSED

    def failed(self, now: float) -> "Breaker":
        if self.on_trial:
            return Breaker(self.failures + 1, now, self.trials + 1)
        failures = self.failures + 1
        return Breaker(failures, now if failures >= FAILURES_MAX else None, self.trials)

    def abandoned(self) -> "Breaker":
        """A trial that ended for another reason than the engine: the next task is the trial."""
        return replace(self, on_trial=False) if self.on_trial else self


CLOSED: Final = Breaker()
