"""When to run a health check again, and what its results add up to. Pure: time arrives as `now`.

A check's interval is the app's word on how often it may be asked, but at the start everybody waits for the first
good answer: so until then we ask early, and early failures do not count. Only failures one interval apart do.
"""

from dataclasses import dataclass, replace

from homeport.core.model.custom import CheckRules
from homeport.ports import Health

EAGER_SECONDS = 0.25
EAGER_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class CheckHistory:
    """The past of one container's check, as far as it matters."""

    since: float
    """When the container was first seen by us; an honest stand-in for its start."""
    last_run: float | None = None
    last_counted: float | None = None
    eager_runs: int = 0
    failures: int = 0
    healthy: bool | None = None
    message: str = ""

    @property
    def verdict(self) -> Health:
        return Health(self.healthy, self.message)


def is_due(history: CheckHistory, rules: CheckRules, now: float) -> bool:
    if history.last_run is None:
        return True
    pause = rules.interval_seconds
    if history.healthy is not True:
        pause = min(pause, EAGER_SECONDS * EAGER_GROWTH**history.eager_runs)
    return now - history.last_run >= pause


def record(history: CheckHistory, rules: CheckRules, *, passed: bool, message: str, now: float) -> CheckHistory:
    """The history after one more run."""
    ran = replace(history, last_run=now, eager_runs=history.eager_runs + 1, message=message)
    if passed:
        return replace(ran, healthy=True, failures=0, eager_runs=0, last_counted=now)
    if not _counts(history, rules, now):
        return ran
    failures = history.failures + 1
    healthy = False if failures >= rules.retries else history.healthy
    return replace(ran, failures=failures, healthy=healthy, last_counted=now)


def _counts(history: CheckHistory, rules: CheckRules, now: float) -> bool:
    if history.healthy is None and now - history.since < rules.start_period_seconds:
        return False
    previous = history.since if history.last_counted is None else history.last_counted
    return now - previous >= rules.interval_seconds
