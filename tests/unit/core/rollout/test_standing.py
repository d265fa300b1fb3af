"""How a site stands in a rollout, read from its deployment and instances."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from homeport.core.model.deployment import Hold, Policy
from homeport.core.model.instance import Failure
from homeport.core.rollout.standing import Place, member_of
from homeport.vocabulary import SiteName, Standing, State
from tests.support.builders import HOME, NOW, a_deployment, an_instance, revision
from tests.support.rollouts import ALL, a_rollout

FAILURE = Failure("HEALTH_CHECK_FAILED", "it answered 500", "web")
LONG_AGO = NOW - timedelta(days=1)


def standing(place: dict[str, Any], instance: dict[str, Any] | None = None, **intent: Any) -> tuple[Standing, str]:
    rollout = a_rollout((ALL, None), **intent)
    waves = (replace(rollout.intent.waves[0], sites=(HOME,)),)
    rollout = replace(rollout, intent=replace(rollout.intent, waves=waves))
    item = replace(an_instance(), **(instance or {}))
    row = a_deployment(state=item.state, revision=revision("first"))
    given: dict[str, Any] = {"is_reachable": True, "deployment": row, "instances": [item], **place}
    member = member_of(rollout, Place(HOME, **given))
    return member.standing, member.why


def test_installed_is_what_runs_the_wanted_revision_everywhere() -> None:
    assert standing({})[0] is Standing.INSTALLED
    assert standing({"is_reachable": False})[0] is Standing.INSTALLED
    assert standing({}, {"running_revision": revision("older")})[0] is Standing.PENDING
    assert standing({"instances": []})[0] is Standing.PENDING


def test_offline_is_who_is_silent_and_not_done() -> None:
    assert standing({"is_reachable": False, "instances": []})[0] is Standing.OFFLINE
    assert (
        standing({"is_reachable": False}, {"state": State.UPDATING, "running_revision": None})[0] is Standing.OFFLINE
    )


def test_left_is_what_was_deleted_or_overtaken() -> None:
    assert standing({"deployment": None}) == (Standing.LEFT, "it was deleted there")
    assert standing({"is_overtaken": True}) == (Standing.LEFT, "something newer was deployed there")


def test_rolled_back_is_failed() -> None:
    told = standing({}, {"rejected_revision": revision("first"), "failure": FAILURE})
    assert told == (Standing.FAILED, "it was rolled back: it answered 500 (HEALTH_CHECK_FAILED)")
    assert standing({}, {"state": State.ROLLINGBACK})[0] is Standing.FAILED
    assert standing({}, {"rejected_revision": revision("older")})[0] is Standing.INSTALLED


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"attempt": 1, "next_at": NOW}, Standing.PENDING),  # a retry follows
        ({"attempt": 1}, Standing.FAILED),  # the site does no more by itself: its deadline has passed, say
        ({"attempt": 1, "failure": Failure("NODE_OFFLINE", "gone")}, Standing.PENDING),  # it may come back
        ({"attempt": 3}, Standing.FAILED),
        (
            {"attempt": 1, "next_at": LONG_AGO, "updated_at": LONG_AGO},
            Standing.PENDING,
        ),  # a site whose clock is wrong
        ({"attempt": 1, "node_id": ""}, Standing.FAILED),  # no node can take it
        ({"attempt": 1, "failure": Failure("UNSUPPORTED_TYPE", "no helm here")}, Standing.FAILED),
        ({"attempt": 3, "revision": revision("older")}, Standing.PENDING),  # the failure of the one before
    ],
)
def test_a_failure_counts_when_no_retry_can_mend_it(changes: dict[str, Any], expected: Standing) -> None:
    failed = {"state": State.FAILED, "running_revision": None, "failure": FAILURE, **changes}
    assert standing({}, failed, policy=Policy(retries_max=2))[0] is expected


@pytest.mark.parametrize(("known", "expected"), [(49.0, Standing.PENDING), (51.0, Standing.FAILED)])
@pytest.mark.parametrize("code", ["IMAGE_PULL_FAILED", "NODE_OFFLINE"])
def test_a_retry_that_does_not_come_is_waited_for_so_long(known: float, expected: Standing, code: str) -> None:
    failed = {
        "state": State.FAILED, "running_revision": None, "next_at": NOW, "attempt": 1,
        "failure": Failure(code, "it broke"),
    }  # fmt: skip
    place = {"failing_seconds": {an_instance().node_id: known}}
    assert standing(place, failed, policy=Policy(backoff_seconds=10.0))[0] is expected


def test_a_site_that_was_not_given_it_waits_unless_it_was_overtaken() -> None:
    rollout = a_rollout((ALL, None))
    place = Place(SiteName("other"), is_reachable=False)
    assert member_of(rollout, place).standing is Standing.WAITING
    assert member_of(rollout, replace(place, is_overtaken=True)).standing is Standing.LEFT


HOLD = Hold(HOME, None, "night shift", "anna", NOW, NOW + timedelta(hours=8))
WORKING = {"state": State.UPDATING, "running_revision": revision("older")}
BEHIND = {"revision": revision("older"), "running_revision": revision("older")}
UNDER_HOLD: list[tuple[str, dict[str, Any], dict[str, Any], Standing]] = [
    # what is seen of the site                     and of the instance      how it stands
    ("it has it already",                {},                     {},       Standing.INSTALLED),
    ("it has not begun",                 {},                     BEHIND,   Standing.HELD),
    ("nothing of it is there yet",       {"instances": []},      {},       Standing.HELD),
    ("it was at work before the hold",   {},                     WORKING,  Standing.PENDING),
    ("it is silent too",                 {"is_reachable": False}, BEHIND,  Standing.OFFLINE),
    ("it was taken over",                {"is_overtaken": True}, BEHIND,   Standing.LEFT),
]  # fmt: skip


@pytest.mark.parametrize(("place", "instance", "expected"), [row[1:] for row in UNDER_HOLD], ids=[
    row[0] for row in UNDER_HOLD
])  # fmt: skip
def test_held_is_who_waits_for_the_end_of_a_hold(
    place: dict[str, Any], instance: dict[str, Any], expected: Standing
) -> None:
    found, why = standing({**place, "hold": HOLD}, instance)
    assert found is expected
    assert (why == "held until 2026-03-01 20:00 UTC by anna: night shift") == (expected is Standing.HELD)


def test_a_held_site_whose_turn_has_not_come_says_so() -> None:
    member = member_of(a_rollout((ALL, None)), Place(SiteName("other"), is_reachable=True, hold=HOLD))
    assert (member.standing, member.can_answer, "night shift" in member.why) == (Standing.WAITING, False, True)
