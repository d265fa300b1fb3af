"""The only health rule: samples of a component go in, a verdict comes out. Pure: time arrives as `now`.

- A check that passes makes its run healthy at once.
- A failure counts when it comes after the start period and one interval after the failure counted before; `retries`
  counted failures in a row make the run unhealthy. Until the first pass the check is executed more often than its
  interval says, because the order waits for it; those early failures do not count.
- A run without a check is healthy when it has lasted `STEADY_SECONDS`: most programs that cannot work exit within
  that time, and an engine with a restart policy makes it look as if they ran.
- A run that has exited has failed immediately. One that is missing or paused gets `ABSENT` to come back.

A restart begins a new run; nothing known about the previous run applies to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Final

from homeport.core.model.health import CheckResult, CheckRules, ContainerRun, ContainerState, HealthSample
from homeport.core.model.instance import Failure
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Code

STEADY_SECONDS: Final = 2.0
EAGER_SECONDS: Final = 0.25
EAGER_GROWTH: Final = 1.5
ABSENT: Final = CheckRules(interval_seconds=1.0, retries=2)
"""For a container that is not running and did not exit: a manual removal or restart may be under way."""
NO_CHECK: Final = "it runs; it has no health check, so it has to keep running for a moment"


@dataclass(frozen=True, slots=True)
class Now:
    """Both clocks of the node: wall clock and monotonic."""

    monotonic: float
    wall: datetime


@dataclass(frozen=True, slots=True)
class RunHealth:
    """The known state of one run. Times are monotonic."""

    since: float
    """Its start as reported by the engine; where that is not available, when it was first seen."""
    checked_at: float | None = None
    counted_at: float | None = None
    eager_checks: int = 0
    failures: int = 0
    """Consecutive failures that count."""
    healthy: bool | None = None
    message: str = ""
    last_result: CheckResult | None = None


@dataclass(frozen=True, slots=True)
class ComponentHealth:
    """The known state of the runs seen last; initially empty."""

    runs: Mapping[ContainerRun, RunHealth] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """`healthy` None means unknown: sample again. A `failure` comes with False only."""

    healthy: bool | None
    message: str = ""
    failure: Failure | None = None


def is_due(health: ComponentHealth, run: ContainerRun, rules: CheckRules, *, now: float) -> bool:
    """Whether the check of a run should be executed now."""
    known = health.runs.get(run)
    if known is None or known.checked_at is None:
        return True
    pause = rules.interval_seconds
    if known.healthy is not True:
        pause = min(pause, EAGER_SECONDS * EAGER_GROWTH ** min(known.eager_checks, 50))
    return now - known.checked_at >= pause


def judge(
    health: ComponentHealth,
    samples: Sequence[HealthSample],
    now: Now,
    *,
    component: str,
    steady_seconds: float = STEADY_SECONDS,
) -> tuple[ComponentHealth, HealthVerdict]:
    """The verdict on a component is that of its worst run. No sample at all means that nothing of it exists."""
    samples = samples or [
        HealthSample(component, ContainerRun(""), ContainerState.STOPPED, message="it has no container")
    ]
    runs: dict[ContainerRun, RunHealth] = {}
    for sample in samples:
        known = health.runs.get(sample.run) or RunHealth(since=now.monotonic - _age_seconds(sample.run, now.wall))
        runs[sample.run] = _after(known, sample, now, steady_seconds)
    verdicts = [_verdict(sample, runs[sample.run], component) for sample in sorted(samples, key=lambda it: it.name)]
    worst = next((each for wanted in (False, None) for each in verdicts if each.healthy is wanted), None)
    return ComponentHealth(runs), worst or HealthVerdict(True)


def progress_of(health: ComponentHealth, message: str) -> str:
    """The progress message of an order that waits for its health checks. One that fails right after the start is not
    an error yet."""
    is_checked = any(run.last_result is not None and run.healthy is None for run in health.runs.values())
    return f"not ready yet: {message}" if is_checked else message


def poll_delay(polls: int) -> float:
    """Short at first, because most programs start within a moment; then longer."""
    return float(min(0.05 * 1.4 ** min(polls, 20), 1.0))


def _after(known: RunHealth, sample: HealthSample, now: Now, steady_seconds: float) -> RunHealth:
    """The state of a run after one more sample."""
    match sample.state:
        case ContainerState.READY:
            return replace(known, healthy=True, failures=0, message=sample.message)
        case ContainerState.PENDING:
            return replace(known, healthy=None, message=sample.message)
        case ContainerState.STOPPED if sample.exit_code is not None:
            return replace(known, healthy=False, failures=1, message=sample.message)
        case ContainerState.STOPPED:
            absent = known if known.healthy is not True else RunHealth(since=now.monotonic)
            return _counted(absent, ABSENT, CheckResult(False, sample.message), now)
        case ContainerState.RUNNING:
            return _running(known, sample, now, steady_seconds)


def _running(known: RunHealth, sample: HealthSample, now: Now, steady_seconds: float) -> RunHealth:
    if sample.rules is None:
        steady = now.monotonic - known.since >= steady_seconds
        return replace(known, healthy=True if steady else None, failures=0, message="" if steady else NO_CHECK)
    if sample.result is None or (sample.result.finished_at and sample.result == known.last_result):
        return known
    return _counted(known, sample.rules, sample.result, now)


def _counted(known: RunHealth, rules: CheckRules, result: CheckResult, now: Now) -> RunHealth:
    at = now.monotonic
    if result.finished_at is not None:
        at -= max(0.0, (now.wall - result.finished_at).total_seconds())
    checked = replace(
        known, checked_at=at, eager_checks=known.eager_checks + 1, message=result.message, last_result=result
    )
    if result.passed:
        return replace(checked, healthy=True, failures=0, eager_checks=0, counted_at=at)
    if known.healthy is None and at - known.since < rules.start_period_seconds:
        return checked
    if at - (known.since if known.counted_at is None else known.counted_at) < rules.interval_seconds:
        return checked
    failures = known.failures + 1
    healthy = False if failures >= rules.retries else known.healthy
    return replace(checked, failures=failures, healthy=healthy, counted_at=at)


def _verdict(sample: HealthSample, known: RunHealth, component: str) -> HealthVerdict:
    message = known.message or "it is not healthy yet"
    message = message if sample.name == component else f"{sample.name}: {message}"
    if known.healthy is not False:
        return HealthVerdict(known.healthy, "" if known.healthy else message)
    if sample.exit_code is not None:
        exited = f"{sample.name} exited with code {sample.exit_code}"
        exited += f": {sample.message}" if sample.message and f"code {sample.exit_code}" not in sample.message else ""
        return HealthVerdict(False, exited, Failure(Code.EXITED, exited, component))
    why = f"{component} did not come back" if sample.state is ContainerState.STOPPED else ""
    why = why or f"the health check of {component} failed {known.failures} times"
    return HealthVerdict(False, message, Failure(Code.HEALTH_CHECK_FAILED, f"{why}: {message}", component))


def _age_seconds(run: ContainerRun, now: datetime) -> float:
    """As reported by the engine, so that a long-running component need not wait; 0 where that is implausible."""
    try:
        return max(0.0, (now - datetime.fromisoformat(run.started_at)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
