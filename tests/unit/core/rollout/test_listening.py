"""Whether central's clock was set since it last looked."""

from datetime import timedelta

import pytest

from homeport.core.rollout.clock_steps import listen
from tests.support.builders import NOW

LOOKS = [
    # the clock went on by   the monotonic one by   it was set
    (5.0,                    5.0,                   False),
    (7.0,                    5.0,                   False),   # corrected a little
    (3600.0,                 3600.0,                False),   # nobody looked for an hour
    (365 * 86_400.0,         5.0,                   True),
    (-86_400.0,              5.0,                   True),
    (20.0,                   5.0,                   True),
]  # fmt: skip


@pytest.mark.parametrize(("clock", "monotonic", "was_set"), LOOKS)
def test_a_clock_that_was_set_is_noticed(clock: float, monotonic: float, was_set: bool) -> None:
    first = listen(None, NOW, 100.0)
    later = NOW + timedelta(seconds=clock)
    assert listen(first, later, 100.0 + monotonic).since == (later if was_set else NOW)
