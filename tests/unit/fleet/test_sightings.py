"""For how long central has known of a failure, and whom it takes for silent, whatever the clocks say."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from homeport.core.model.event import Site
from homeport.fleet.central.sightings import Sightings
from homeport.fleet.shared.overview import Reachability
from homeport.vocabulary import Generation, NodeId, State
from tests.support.builders import HOME, NOW, an_instance

DAY, YEAR = timedelta(days=1), timedelta(days=365)
ONE = NodeId("one")


def test_a_failure_is_known_since_it_was_first_seen_and_a_new_attempt_begins_anew() -> None:
    seen = Sightings()
    failed = replace(an_instance(state=State.FAILED), updated_at=NOW - YEAR)
    assert seen.failing_seconds([failed], 100.0) == {ONE: 0.0}
    assert seen.failing_seconds([failed], 107.0) == {ONE: 7.0}
    assert seen.failing_seconds([replace(failed, generation=Generation(8))], 110.0) == {ONE: 0.0}
    assert seen.failing_seconds([an_instance()], 120.0) == {}
    assert seen.failing_seconds([failed], 130.0) == {ONE: 0.0}


SILENCE = [
    # heard            listening since      reachable
    (NOW,              None,                True),
    (NOW - DAY,        None,                False),
    (NOW - DAY,        NOW,                 True),    # central has just started, or its clock was set ahead
    (NOW + DAY,        None,                False),   # set back: who is there calls again within seconds
    (NOW + DAY,        NOW,                 True),
    (NOW + DAY,        NOW + DAY,           False),
    (NOW - DAY,        NOW - DAY,           False),
]  # fmt: skip


@pytest.mark.parametrize(("heard", "listening", "reachable"), SILENCE)
def test_who_is_silent_is_told_by_times_that_can_be_compared(
    heard: datetime, listening: datetime | None, reachable: bool
) -> None:
    reachability = Reachability(30.0, listening)
    assert reachability.is_reachable(Site(HOME, NOW, heard, None), NOW) is reachable
