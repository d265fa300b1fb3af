"""Lengths of time are read and written as people do."""

import pytest

from homeport.core.values.durations import duration_text, seconds_of


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45), ("8m30s", 510), ("1h", 3600), ("7d", 604_800), ("0s", 0)])
def test_lengths_of_time_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "1m1h", "-1s", "1.5h", None, 5, "five"])
def test_anything_else_is_none(text: object) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("text", ["0s", "45s", "8m30s", "1h", "1d2h3m4s"])
def test_they_are_written_in_the_shortest_form(text: str) -> None:
    seconds = seconds_of(text)
    assert seconds is not None
    assert duration_text(seconds) == text
