"""The heartbeat timeline of a node."""

from datetime import UTC, datetime, timedelta

from homeport.core.telemetry.heartbeats import Interval, interrupted, observe, timeline
from homeport.vocabulary import Liveness, NodeId

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ONE, TWO = NodeId("one"), NodeId("two")
LIVE, STALE, LOST, UNKNOWN = Liveness.LIVE, Liveness.STALE, Liveness.LOST, Liveness.UNKNOWN


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_an_interval_begins_with_the_node_and_ends_when_its_state_changes() -> None:
    first = observe({}, {ONE: LIVE, TWO: LIVE}, at(0))
    assert first == [Interval(ONE, at(0), LIVE), Interval(TWO, at(0), LIVE)]
    known = {each.node_id: each for each in first}
    assert observe(known, {ONE: LIVE, TWO: LIVE}, at(5)) == []
    assert observe(known, {ONE: STALE, TWO: LIVE}, at(20)) == [
        Interval(ONE, at(0), LIVE, at(20)),
        Interval(ONE, at(20), STALE),
    ]


def test_the_last_interval_of_a_removed_node_ends() -> None:
    assert observe({ONE: Interval(ONE, at(0), LIVE)}, {}, at(9)) == [Interval(ONE, at(0), LIVE, at(9))]


def test_a_clock_that_was_set_back_makes_no_negative_interval() -> None:
    assert observe({ONE: Interval(ONE, at(10), LIVE)}, {}, at(5)) == [Interval(ONE, at(10), LIVE, at(10))]


def test_what_was_open_when_the_site_stopped_ends_when_it_last_looked() -> None:
    assert interrupted([Interval(ONE, at(0), LIVE)], at(30)) == [Interval(ONE, at(0), LIVE, at(30))]


def test_the_timeline_is_cut_to_its_range_and_says_what_is_not_known() -> None:
    kept = [
        Interval(ONE, at(100), LIVE),
        Interval(ONE, at(0), LIVE, at(40)),
        Interval(ONE, at(40), LOST, at(60)),
    ]
    assert timeline(kept, start=at(10), end=at(200), until=at(150)) == [
        Interval(ONE, at(10), LIVE, at(40)),
        Interval(ONE, at(40), LOST, at(60)),
        Interval(ONE, at(60), UNKNOWN, at(100)),
        Interval(ONE, at(100), LIVE, at(150)),
        Interval(ONE, at(150), UNKNOWN, at(200)),
    ]


def test_a_node_without_a_history_has_an_empty_timeline() -> None:
    assert timeline([], start=at(0), end=at(10), until=at(10)) == []
