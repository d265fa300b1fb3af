"""For how long a wave has been watched, whatever the clocks and restarts did meanwhile."""

import pytest

from homeport.core.rollout.bake import watched_after

YEAR = 365 * 86_400.0
STEPS = [
    # so far    since the last look   a round   then
    (0.0,       None,                 5.0,      0.0),     # the first look after a start: nobody watched before
    (40.0,      None,                 5.0,      40.0),    # what was kept before a restart stays
    (40.0,      0.25,                 5.0,      40.25),   # something happened, so it looked at once
    (40.0,      5.0,                  5.0,      45.0),
    (40.0,      15.0,                 5.0,      55.0),    # a slow round or two
    (40.0,      15.1,                 5.0,      45.0),    # nobody looked for too long
    (40.0,      YEAR,                 5.0,      45.0),
    (40.0,      -86_400.0,            5.0,      40.0),
    (0.0,       9.0,                  0.05,     9.0),     # short rounds on a slow machine
]  # fmt: skip


@pytest.mark.parametrize(("watched", "step", "round_seconds", "then"), STEPS)
def test_a_look_adds_what_was_watched_and_never_more(
    watched: float, step: float | None, round_seconds: float, then: float
) -> None:
    assert watched_after(watched, step, round_seconds=round_seconds) == pytest.approx(then)
