"""The rate of a key: never more than it allows, and never less once the time has passed."""

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.inference.key_limits import BURST_SECONDS, KeyRate


@given(per_minute=st.integers(1, 6000), gaps=st.lists(st.floats(0, 30), min_size=1, max_size=200))
def test_in_any_time_no_more_than_the_rate_and_its_burst_pass(per_minute: int, gaps: list[float]) -> None:
    rate, paid, now, passed = KeyRate(per_minute), 0.0, 100.0, []
    for gap in gaps:
        now += gap
        wait = rate.wait_seconds(paid, now)
        if wait == 0:
            paid = rate.paid(paid, now)
            passed.append(now)
        else:
            assert rate.wait_seconds(paid, now + wait + 1e-6) == 0, "after the time it was told, it may"
    for first, begin in enumerate(passed):
        for last in range(first, len(passed)):
            seconds = passed[last] - begin + max(BURST_SECONDS, 60 / per_minute)
            assert last - first + 1 <= seconds * per_minute / 60 + 1e-6


def test_without_a_rate_everything_passes() -> None:
    assert KeyRate(0).wait_seconds(10**9, 0.0) == 0.0
