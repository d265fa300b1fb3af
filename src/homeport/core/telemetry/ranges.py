"""Which points answer a question: the range of time, the step, and the resolution to read."""

from datetime import datetime, timedelta
from typing import Final

from homeport.core.telemetry.windows import FULL, RESOLUTIONS, Resolution
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

STEPS_MAX: Final = 2_000
STEPS_WANTED: Final = 240
"""Where no step is given: about as many points as a chart is wide."""
RANGE_SECONDS: Final = 3600.0
STEP_SECONDS_MIN: Final = 1.0
_ROUND: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


@dataclass(frozen=True, slots=True)
class TimeRange:
    start: datetime
    end: datetime
    step_seconds: float
    resolution: Resolution

    @property
    def start_ms(self) -> int:
        return int(self.start.timestamp() * 1000)

    @property
    def end_ms(self) -> int:
        return int(self.end.timestamp() * 1000)

    @property
    def step_ms(self) -> int:
        return int(self.step_seconds * 1000)


def time_range(now: datetime, start: datetime | None, end: datetime | None, step_seconds: float | None) -> TimeRange:
    """The last hour where no range is given. The step is at least what was kept of such an old range. Raises
    InvalidInput with the fields that are wrong."""
    end = now if end is None else end
    start = end - timedelta(seconds=RANGE_SECONDS) if start is None else start
    length = (end - start).total_seconds()
    if length <= 0:
        raise InvalidInput(problems=[Problem("from", "must be before `to`.")])
    wanted = step_seconds if step_seconds is not None else _step_for(length)
    if wanted < STEP_SECONDS_MIN:
        raise InvalidInput(problems=[Problem("step", f"must be at least {STEP_SECONDS_MIN:g} second.")])
    resolution = _resolution(now, start, wanted)
    step = max(wanted, float(resolution.seconds))
    if length / step > STEPS_MAX:
        least = -(-length // STEPS_MAX)
        raise InvalidInput(problems=[Problem("step", f"must be at least {least:g} seconds for a range this long.")])
    aligned = datetime.fromtimestamp(start.timestamp() // step * step, tz=end.tzinfo)
    return TimeRange(aligned, end, step, resolution)


def _step_for(length: float) -> float:
    return float(next((each for each in _ROUND if length / each <= STEPS_WANTED), _ROUND[-1]))


def _resolution(now: datetime, start: datetime, step_seconds: float) -> Resolution:
    """The coarsest that is fine enough for the step; a coarser one where only that reaches back so far."""
    age = (now - start).total_seconds()
    reaching = [each for each in RESOLUTIONS if each.keep_seconds >= age] or [RESOLUTIONS[-1]]
    return next((each for each in reversed(reaching) if FULL.seconds < each.seconds <= step_seconds), reaching[0])
