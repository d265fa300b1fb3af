"""When a component that was started counts as healthy, and when it has failed. Pure: time arrives as `now`.

A success of a check is believed at once. Where no check speaks, a run is believed when it has gone on for
`steady_seconds`: most programs that cannot work end within that time, and an engine that was told to restart them
makes it look as if they ran. A failing health check counts only once per `spacing_seconds`, so that fast polling
does not condemn a program that is still starting. A container that ended is never healthy again: it fails at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from homeport.core.model.instance import Failure
from homeport.ports import Container, Health, Run
from homeport.vocabulary import Code


@dataclass(frozen=True, slots=True)
class CheckRules:
    failures_max: int = 3
    spacing_seconds: float = 1.0
    """Runtimes answer "not known yet" while a check may still come good, so what counts here is nearly certain."""
    steady_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Checks:
    """What was seen so far. `failures` are consecutive."""

    failures: int = 0
    counted_at: float = 0.0
    message: str = ""
    runs: frozenset[Run] = frozenset()
    """Those that no check speaks for, and since when these very ones were seen."""
    runs_since: float = 0.0


@dataclass(frozen=True, slots=True)
class Now:
    """Both clocks of the node."""

    monotonic: float
    wall: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """Neither healthy nor failed means: ask again."""

    healthy: bool = False
    failure: Failure | None = None


def judge(
    checks: Checks, health: Health, containers: Sequence[Container], now: Now, rules: CheckRules, *, component: str
) -> tuple[Checks, Verdict]:
    if health.healthy:
        return _steady(checks, health.runs, now, rules)
    gone = next((each for each in containers if not each.running and each.exit_code is not None), None)
    if gone is not None:
        message = f"{gone.name} exited with code {gone.exit_code}" + (f": {health.message}" if health.message else "")
        return checks, Verdict(failure=Failure(Code.EXITED, message, component))
    if health.healthy is None:
        return Checks(0, 0.0, health.message or checks.message), Verdict()
    if checks.failures and now.monotonic - checks.counted_at < rules.spacing_seconds:
        return Checks(checks.failures, checks.counted_at, health.message), Verdict()
    checks = Checks(checks.failures + 1, now.monotonic, health.message)
    if checks.failures < rules.failures_max:
        return checks, Verdict()
    message = f"the health check of {component} failed {checks.failures} times"
    return checks, Verdict(
        failure=Failure(
            Code.HEALTH_CHECK_FAILED, f"{message}: {health.message}" if health.message else message, component
        )
    )


def _steady(checks: Checks, runs: frozenset[Run], now: Now, rules: CheckRules) -> tuple[Checks, Verdict]:
    if runs != checks.runs:
        checks = replace(checks, runs=runs, runs_since=now.monotonic)
    seen_seconds = now.monotonic - checks.runs_since
    if all(max(seen_seconds, _age_seconds(run, now.wall)) >= rules.steady_seconds for run in runs):
        return checks, Verdict(healthy=True)
    return replace(checks, message="it runs; it has no health check, so it has to go on for a moment"), Verdict()


def _age_seconds(run: Run, now: datetime) -> float:
    """By the engine's word, so that what has run for long is not made to wait."""
    try:
        return (now - datetime.fromisoformat(run.started_at)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def poll_delay(polls: int) -> float:
    """Fast at first, for most programs are up in a moment; then gently, for the others."""
    return float(min(0.05 * 1.4 ** min(polls, 20), 1.0))
