"""When a component that was started counts as healthy, and when it has failed. Pure: time arrives as `now`.

A success is believed at once. A failing health check counts only once per `spacing_seconds`, so that fast polling
does not condemn a program that is still starting. A container that ended is never healthy again: it fails at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from homeport.core.model.instance import Failure
from homeport.ports import Container, Health
from homeport.vocabulary import Code


@dataclass(frozen=True, slots=True)
class CheckRules:
    failures_max: int = 3
    spacing_seconds: float = 1.0
    """Runtimes answer "not known yet" while a check may still come good, so what counts here is nearly certain."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What was seen so far. `failures` are consecutive."""

    failures: int = 0
    counted_at: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Neither healthy nor failed means: ask again."""

    healthy: bool = False
    failure: Failure | None = None


def judge(
    checks: Checks, health: Health, containers: Sequence[Container], now: float, rules: CheckRules, *, component: str
) -> tuple[Checks, Verdict]:
    if health.healthy:
        return checks, Verdict(healthy=True)
    gone = next((each for each in containers if not each.running and each.exit_code is not None), None)
    if gone is not None:
        message = f"{gone.name} exited with code {gone.exit_code}" + (f": {health.message}" if health.message else "")
        return checks, Verdict(failure=Failure(Code.EXITED, message, component))
    if health.healthy is None:
        return Checks(0, 0.0, health.message or checks.message), Verdict()
    if checks.failures and now - checks.counted_at < rules.spacing_seconds:
        return Checks(checks.failures, checks.counted_at, health.message), Verdict()
    checks = Checks(checks.failures + 1, now, health.message)
    if checks.failures < rules.failures_max:
        return checks, Verdict()
    message = f"the health check of {component} failed {checks.failures} times"
    return checks, Verdict(
        failure=Failure(
            Code.HEALTH_CHECK_FAILED, f"{message}: {health.message}" if health.message else message, component
        )
    )


def poll_delay(polls: int) -> float:
    """Fast at first, for most programs are up in a moment; then gently, for the others."""
    return float(min(0.05 * 1.4 ** min(polls, 20), 1.0))
