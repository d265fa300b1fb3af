"""The delay before a retry grows, is bounded and is jittered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.core.values.backoff import BackoffPolicy, chance_of

POLICY = BackoffPolicy(first_seconds=0.5, max_seconds=60.0)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (7, 32.0), (8, 60.0)])
def test_the_ceiling_doubles_with_each_failure_up_to_the_maximum(failures: int, seconds: float) -> None:
    assert POLICY.ceiling_seconds(failures) == seconds


@given(failures=st.integers(0, 10**9), chance=st.floats(0, 1))
def test_a_delay_is_between_half_the_ceiling_and_all_of_it(failures: int, chance: float) -> None:
    ceiling = POLICY.ceiling_seconds(failures)
    assert ceiling / 2 <= POLICY.delay_seconds(failures, chance=chance) <= ceiling <= POLICY.max_seconds


@given(seed=st.text())
def test_a_seed_has_one_chance_that_is_always_the_same(seed: str) -> None:
    assert chance_of(seed) == chance_of(seed)
    assert 0.0 <= chance_of(seed) < 1.0


def test_different_seeds_spread_out() -> None:
    chances = sorted(chance_of(f"node-{number}") for number in range(1000))
    assert chances[100] < 0.2 and chances[900] > 0.8
