"""When a Margo client calls: within its hours, never in a downtime, and always again where the schedule allows it."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.margo.polling import DAY_MINUTES, DailyWindow, PollSchedule

MINUTES = st.integers(0, DAY_MINUTES - 1)
WINDOWS = st.lists(
    st.tuples(MINUTES, MINUTES).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: DailyWindow(*pair)),
    max_size=3,
).map(tuple)
NOW = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


@given(hours=WINDOWS, downtime=WINDOWS, now=NOW)
def test_what_is_waited_for_is_the_next_moment_at_which_it_may_call(
    hours: tuple[DailyWindow, ...], downtime: tuple[DailyWindow, ...], now: datetime
) -> None:
    plan = PollSchedule(15.0, hours, downtime)
    seconds = plan.seconds_until_open(now)
    assert (seconds == 0) is plan.may_call(now)
    assert 0 <= seconds <= DAY_MINUTES * 60
    if seconds < DAY_MINUTES * 60:
        opens = now + timedelta(seconds=seconds)
        assert plan.may_call(opens) and not plan.is_downtime(opens)
        for part in range(1, 10):
            assert seconds == 0 or not plan.may_call(now + timedelta(seconds=seconds * part / 10))


@given(hours=WINDOWS, downtime=WINDOWS, now=NOW)
def test_a_downtime_is_above_the_hours(
    hours: tuple[DailyWindow, ...], downtime: tuple[DailyWindow, ...], now: datetime
) -> None:
    minute = now.hour * 60 + now.minute
    inside = not hours or any(each.holds(minute) for each in hours)
    assert PollSchedule(1.0, hours, downtime).may_call(now) is (inside and not any(e.holds(minute) for e in downtime))


@given(window=WINDOWS.filter(bool))
def test_a_window_and_what_is_left_of_the_day_are_the_whole_day(window: tuple[DailyWindow, ...]) -> None:
    first = window[0]
    other = DailyWindow(first.end, first.begin)
    assert all(first.holds(minute) is not other.holds(minute) for minute in range(0, DAY_MINUTES, 7))
