"""Settings of a node that can change while it runs: their valid values, and the effect of a change."""

from collections.abc import Mapping
from typing import Final

from homeport.core.model.node import Tunable
from homeport.core.values.selectors import KEY_PATTERN, VALUE_PATTERN
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
HEARTBEAT_SECONDS_MIN: Final = 0.5
HEARTBEAT_SECONDS_MAX: Final = 300.0
TELEMETRY_SECONDS_MIN: Final = 1.0
TELEMETRY_SECONDS_MAX: Final = 300.0
LABELS_MAX: Final = 64
RESERVED: Final = "homeport."
"""Labels that only the node itself may set: its permissions are among them."""
BEATS_UNTIL_STALE: Final = 3
BEATS_UNTIL_LOST: Final = 6


@dataclass(frozen=True, slots=True)
class TuneChange:
    """None leaves a setting unchanged; 0, an empty text or a label without a value resets it to the node's own
    value."""

    heartbeat_seconds: float | None = None
    log_level: str | None = None
    labels: Mapping[str, str | None] | None = None
    telemetry_seconds: float | None = None


def tuned(before: Tunable, change: TuneChange) -> Tunable:
    """Raises InvalidInput with the fields that are wrong."""
    labels = {**before.labels, **(change.labels or {})}
    after = Tunable(
        before.heartbeat_seconds if change.heartbeat_seconds is None else change.heartbeat_seconds,
        {key: value for key, value in sorted(labels.items()) if value is not None},
        before.log_level if change.log_level is None else change.log_level.lower(),
        before.telemetry_seconds if change.telemetry_seconds is None else change.telemetry_seconds,
    )
    check_tunable(after)
    return after


def check_tunable(tunable: Tunable) -> None:
    problems = []
    seconds = tunable.heartbeat_seconds
    if seconds and not HEARTBEAT_SECONDS_MIN <= seconds <= HEARTBEAT_SECONDS_MAX:
        bounds = f"{HEARTBEAT_SECONDS_MIN:g} and {HEARTBEAT_SECONDS_MAX:g} seconds"
        problems.append(Problem("heartbeat_seconds", f"must be between {bounds}, or 0 for the site's own."))
    interval = tunable.telemetry_seconds
    if interval and not TELEMETRY_SECONDS_MIN <= interval <= TELEMETRY_SECONDS_MAX:
        bounds = f"{TELEMETRY_SECONDS_MIN:g} and {TELEMETRY_SECONDS_MAX:g} seconds"
        problems.append(Problem("telemetry_seconds", f"must be between {bounds}, or 0 for the node's own."))
    if tunable.log_level and tunable.log_level not in LOG_LEVELS:
        problems.append(Problem("log_level", f"must be one of {', '.join(LOG_LEVELS)}."))
    if len(tunable.labels) > LABELS_MAX:
        problems.append(Problem("labels", f"may be {LABELS_MAX} at most."))
    for key, value in tunable.labels.items():
        if not KEY_PATTERN.fullmatch(key) or not VALUE_PATTERN.fullmatch(value):
            problems.append(Problem("labels", f'"{key}={value}" is not a valid label.'))
        elif key.startswith(RESERVED):
            problems.append(Problem("labels", f'"{key}" is said by the node itself and cannot be set.'))
    if problems:
        raise InvalidInput(problems=problems)


def liveness_timeouts(tunable: Tunable, *, stale_seconds: float, lost_seconds: float) -> tuple[float, float]:
    """After how long a silent node is stale, and lost; a longer heartbeat interval extends both."""
    beat = tunable.heartbeat_seconds
    return max(stale_seconds, BEATS_UNTIL_STALE * beat), max(lost_seconds, BEATS_UNTIL_LOST * beat)
