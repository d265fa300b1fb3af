"""What a runtime observes about the health of a component: raw facts, evaluated by `core.node.health` alone."""

from datetime import datetime
from enum import StrEnum

from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CheckRules:
    """How often a health check runs and when it counts; the defaults are those of the compose specification."""

    interval_seconds: float = 30.0
    timeout_seconds: float = 30.0
    retries: int = 3
    start_period_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One execution of a health check."""

    passed: bool
    message: str = ""
    finished_at: datetime | None = None
    """For a check that the engine schedules itself, so that a result is not counted twice. None: just now."""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """From one start of a container or process to its end. A restart is another run."""

    id: str
    started_at: str = ""
    """ISO 8601, as reported by the engine; empty where it reports none."""


class ContainerState(StrEnum):
    RUNNING = "running"
    READY = "ready"
    """Needs no check: it has completed its work, or its platform reports it ready."""
    PENDING = "pending"
    """Starting, for instance a job that has to complete before others start."""
    STOPPED = "stopped"
    """Not running: exited, paused, missing."""


@dataclass(frozen=True, slots=True)
class HealthSample:
    """One observation of one container or process of a component."""

    name: str
    run: ContainerRun
    state: ContainerState = ContainerState.RUNNING
    exit_code: int | None = None
    """Of a run that has ended."""
    message: str = ""
    rules: CheckRules | None = None
    """None: it has no health check."""
    result: CheckResult | None = None
    """The newest one; None while the check has not run or was not due."""
