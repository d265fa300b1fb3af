"""Which resolution answers a question about a range of time."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.telemetry.ranges import STEPS_MAX, time_range
from homeport.core.telemetry.windows import FULL, MINUTE, TEN_MINUTES, Resolution
from homeport.errors import InvalidInput

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def ago(**parts: float) -> datetime:
    return NOW - timedelta(**parts)


@pytest.mark.parametrize(
    ("start", "step", "resolution", "used"),
    [
        (None, None, FULL, 15),
        (ago(minutes=5), None, FULL, 2),
        (ago(minutes=30), 60, MINUTE, 60),
        (ago(hours=6), None, MINUTE, 120),
        (ago(hours=6), 60, MINUTE, 60),
        (ago(hours=20), 3600, TEN_MINUTES, 3600),
        (ago(days=3), None, TEN_MINUTES, 1800),
        (ago(hours=30), 90, TEN_MINUTES, 600),
        (ago(days=30), 3600, TEN_MINUTES, 3600),
    ],
)
def test_the_step_and_the_age_choose_the_resolution(
    start: datetime | None, step: float | None, resolution: Resolution, used: float
) -> None:
    found = time_range(NOW, start, None, step)
    assert (found.resolution, found.step_seconds) == (resolution, used)
    assert found.start.timestamp() % used == 0


@pytest.mark.parametrize(
    ("start", "end", "step", "field"),
    [
        (NOW, NOW, None, "from"),
        (ago(hours=1), ago(hours=2), None, "from"),
        (ago(minutes=1), NOW, 0.1, "step"),
        (ago(hours=1), NOW, 1, "step"),
    ],
)
def test_a_range_that_makes_no_sense_or_too_many_points_names_its_field(
    start: datetime, end: datetime, step: float | None, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        time_range(NOW, start, end, step)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_the_error_names_a_step_that_works() -> None:
    start = NOW - timedelta(seconds=STEPS_MAX * 2)
    with pytest.raises(InvalidInput, match="at least 2 seconds"):
        time_range(NOW, start, NOW, 1)
    assert time_range(NOW, start, NOW, 2).step_seconds == 2
