"""Settings of a node that change while it runs."""

import pytest

from homeport.core.model.node import Tunable
from homeport.core.node.tuning import TuneChange, liveness_timeouts, tuned
from homeport.errors import InvalidInput


def test_what_is_not_said_stays_and_what_is_empty_goes_back() -> None:
    first = tuned(Tunable(), TuneChange(10.0, "DEBUG", {"zone": "a", "gpu": ""}))
    assert first == Tunable(10.0, {"gpu": "", "zone": "a"}, "debug")
    assert tuned(first, TuneChange(labels={"zone": None})) == Tunable(10.0, {"gpu": ""}, "debug")
    assert tuned(first, TuneChange(0.0, "", {"zone": None, "gpu": None})) == Tunable()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (TuneChange(0.1), "heartbeat_seconds"),
        (TuneChange(-1.0), "heartbeat_seconds"),
        (TuneChange(float("nan")), "heartbeat_seconds"),
        (TuneChange(1e9), "heartbeat_seconds"),
        (TuneChange(log_level="loud"), "log_level"),
        (TuneChange(labels={"a b": "c"}), "labels"),
        (TuneChange(labels={"homeport.allow": "privileged"}), "labels"),
        (TuneChange(labels={f"k{number}": "v" for number in range(65)}), "labels"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_field(change: TuneChange, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        tuned(Tunable(), change)
    assert {problem.field for problem in refused.value.problems} == {field}


def test_a_node_that_was_asked_to_beat_slowly_is_not_late_for_it() -> None:
    assert liveness_timeouts(Tunable(), stale_seconds=15, lost_seconds=30) == (15, 30)
    assert liveness_timeouts(Tunable(60.0), stale_seconds=15, lost_seconds=30) == (180, 360)
