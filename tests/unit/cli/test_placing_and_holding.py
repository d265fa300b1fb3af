"""What the options for placement and holds turn into, and what is said of those that cannot be read."""

from typing import Any

import click
import pytest

from homeport.cli.commands.apps.deploy import placement_of
from homeport.cli.commands.machines.nodes import state_text
from homeport.cli.terminal.holds import hold_end


@pytest.mark.parametrize(
    ("place", "selector", "expected"),
    [
        (None, None, {}),
        ("each", None, {"mode": "each"}),
        ("each", "gpu", {"mode": "each", "selector": "gpu"}),
        ("one", "zone=a", {"mode": "one", "selector": "zone=a"}),
        ("3", None, {"mode": "count", "count": 3}),
    ],
)
def test_a_placement_is_sent_as_it_was_asked_for(place: str | None, selector: str | None, expected: Any) -> None:
    assert placement_of(place, selector) == expected


@pytest.mark.parametrize("place", ["0", "-1", "all", "1.5", ""])
def test_a_placement_that_cannot_be_read_says_what_can(place: str) -> None:
    with pytest.raises(click.UsageError, match="write each, one, or a number of nodes"):
        placement_of(place, None)


def test_a_hold_ends_after_a_shift_unless_it_is_said_otherwise() -> None:
    assert hold_end(None, None) == {"lasts_seconds": 8 * 3600.0}
    assert hold_end("90m", None) == {"lasts_seconds": 5400.0}
    assert hold_end(None, "2030-01-31T18:00") == {"expires_at": "2030-01-31T18:00:00+00:00"}


@pytest.mark.parametrize(
    ("lasts", "until", "says"),
    [
        ("soon", None, "write a length of time"),
        ("0s", None, "write a length of time"),
        (None, "tomorrow", "write a moment"),
        ("8h", "2030-01-31", "exclude each other"),
    ],
)
def test_an_end_that_cannot_be_read_says_what_can(lasts: str | None, until: str | None, says: str) -> None:
    with pytest.raises(click.UsageError, match=says):
        hold_end(lasts, until)


def test_a_drained_node_that_is_lost_is_both() -> None:
    assert state_text({"drain": None, "liveness": "live"}) == "live"
    assert state_text({"drain": "x", "liveness": "live"}) == "drained"
    assert state_text({"drain": "x", "liveness": "lost"}) == "lost, drained"
