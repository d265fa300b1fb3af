"""The repair backoff of a component that keeps failing."""

from homeport.core.values.backoff import BackoffPolicy
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RepairBackoff:
    """How often a component was repaired recently, and when it may be repaired again."""

    attempts: int
    last: float
    not_before: float


@dataclass(frozen=True, slots=True)
class BackoffRules:
    first_seconds: float = 1.0
    max_seconds: float = 300.0
    forget_seconds: float = 600.0
    """After this long without a repair the backoff resets. Longer than `max_seconds`, else a crash loop would be
    forgotten between two of its own repairs."""


def may_repair(backoff: RepairBackoff | None, now: float) -> bool:
    return backoff is None or now >= backoff.not_before


def after_repair(backoff: RepairBackoff | None, now: float, rules: BackoffRules) -> RepairBackoff:
    """The first repair is immediate; each further one waits twice as long as the one before."""
    is_fresh = backoff is None or now - backoff.last > rules.forget_seconds
    attempts = 1 if backoff is None or is_fresh else backoff.attempts + 1
    delay = BackoffPolicy(rules.first_seconds, rules.max_seconds).ceiling_seconds(attempts)
    return RepairBackoff(attempts, now, now + delay)
