"""How long to wait before trying again: growing, bounded, and jittered so that a crowd spreads out."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    first_seconds: float = 0.2
    last_seconds: float = 5.0
    failures: int = 0
    chance: random.Random = field(default_factory=random.Random)
    """Our own, so that nobody who seeds the shared one is disturbed or disturbs us."""

    def next_seconds(self) -> float:
        ceiling = min(self.last_seconds, self.first_seconds * 2**self.failures)
        self.failures = min(self.failures + 1, 30)
        return self.chance.uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        self.failures = 0
