"""Renewal comes at half of a certificate's life, a little spread, and failures are repeated with a bound."""

from datetime import UTC, datetime, timedelta

from homeport.core.identity.pacing import RETRY_SECONDS_MAX, due_in_seconds, retry_in_seconds

START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(days=1)


def test_renewal_is_due_at_half_of_the_life_or_a_little_before() -> None:
    assert due_in_seconds(START, END, START, chance=0.0) == 43_200
    assert due_in_seconds(START, END, START, chance=1.0) == 43_200 - 8_640
    assert due_in_seconds(START, END, END, chance=0.5) == 0


def test_one_that_was_made_with_a_clock_ahead_is_due_at_once() -> None:
    assert due_in_seconds(START, END, START - timedelta(days=365), chance=0.5) == 0


def test_failures_are_repeated_ever_slower_up_to_a_minute() -> None:
    waits = [retry_in_seconds(START, END, failures=count, chance=1.0) for count in range(1, 30)]
    assert waits == sorted(waits)
    assert waits[0] < 1
    assert waits[-1] == RETRY_SECONDS_MAX


def test_a_short_life_gets_many_attempts() -> None:
    end = START + timedelta(seconds=10)
    assert retry_in_seconds(START, end, failures=20, chance=1.0) == 0.5
