"""No leap of the clock deletes at once what is kept for days."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.retention import CONFIRMED_AFTER, LEAP_MAX, SeenClock, look

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def looks(clock: SeenClock | None, start: datetime, count: int, every: timedelta = HOUR) -> SeenClock:
    """A clock that runs on from `start`."""
    for number in range(1, count + 1):
        clock = look(clock, start + number * every, every)
    assert clock is not None
    return clock


def test_time_that_the_role_has_run_is_believed_however_long_it_is() -> None:
    assert looks(None, NOW, 90, timedelta(days=1)).believed == NOW + timedelta(days=90)


def test_a_role_that_was_off_for_a_week_believes_its_clock() -> None:
    before = look(None, NOW, timedelta(0))
    assert look(before, NOW + LEAP_MAX, timedelta(0)).believed == NOW + LEAP_MAX


def test_a_leap_of_years_counts_after_a_day_of_the_new_time() -> None:
    leapt = NOW + timedelta(days=5 * 365)
    clock = look(look(None, NOW, timedelta(0)), leapt, HOUR)
    assert clock.believed == NOW + HOUR and not clock.is_believed
    assert looks(clock, leapt, 23).believed == NOW + 24 * HOUR
    assert looks(clock, leapt, 24).believed == leapt + CONFIRMED_AFTER


def test_a_clock_that_leaps_again_has_to_wait_again() -> None:
    first, second = NOW + timedelta(days=400), NOW + timedelta(days=4_000)
    clock = looks(look(look(None, NOW, timedelta(0)), first, HOUR), first, 20)
    assert not looks(clock, second, 20).is_believed


def test_a_clock_that_is_corrected_is_believed_at_once() -> None:
    leapt = look(look(None, NOW, timedelta(0)), NOW + timedelta(days=400), HOUR)
    assert look(leapt, NOW + 2 * HOUR, HOUR) == SeenClock(NOW + 2 * HOUR, NOW + 2 * HOUR)
    assert look(leapt, NOW - timedelta(days=400), HOUR).believed == NOW - timedelta(days=400)


@given(st.lists(st.tuples(st.integers(-5_000, 5_000), st.integers(0, 12)), max_size=30))
def test_less_than_a_day_of_running_never_ages_anything_by_more_than_leaps_of_a_week(
    steps: list[tuple[int, int]],
) -> None:
    """Whatever the clock shows, `steps` in days, at looks some minutes apart."""
    clock, ran, lowest = look(None, NOW, timedelta(0)), timedelta(0), NOW
    for days, minutes in steps:
        now, elapsed = NOW + timedelta(days=days), timedelta(minutes=minutes)
        ran += elapsed
        clock = look(clock, now, elapsed)
        assert min(clock.believed, now) <= max(lowest, NOW) + ran + LEAP_MAX * (len(steps) + 1)
