"""Retry delays: growing, bounded, and jittered so that many clients spread out."""

import random
from dataclasses import field

from homeport.core.values.backoff import BackoffPolicy
from homeport.lazy_dataclass import dataclass


@dataclass(slots=True)
class Backoff:
    first_seconds: float = 0.2
    last_seconds: float = 5.0
    failures: int = 0
    chance: random.Random = field(default_factory=random.Random)
    """Our own generator, so that seeding the shared one elsewhere has no effect."""

    def next_seconds(self) -> float:
        self.failures += 1
        policy = BackoffPolicy(self.first_seconds, self.last_seconds)
        return policy.delay_seconds(self.failures, chance=self.chance.random())

    def reset(self) -> None:
        self.failures = 0
