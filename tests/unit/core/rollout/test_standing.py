"""How a site stands in a rollout, read from its deployment and instances."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from homeport.core.model.deployment import Hold, PolicyOverrides
from homeport.core.model.instance import Failure, Unhealthy
from homeport.core.rollout.standing import RolloutSiteFacts, member_of
from homeport.vocabulary import UNPLACED, RolloutSiteStatus, SiteName, State
from tests.support.builders import HOME, NOW, a_deployment, an_instance, revision
from tests.support.rollouts import ALL, a_rollout

FAILURE = Failure("HEALTH_CHECK_FAILED", "it answered 500", "web")
LONG_AGO = NOW - timedelta(days=1)


def standing(
    place: dict[str, Any], instance: dict[str, Any] | None = None, **intent: Any
) -> tuple[RolloutSiteStatus, str]:
    rollout = a_rollout((ALL, None), **intent)
    waves = (replace(rollout.intent.waves[0], sites=(HOME,)),)
    rollout = replace(rollout, intent=replace(rollout.intent, waves=waves))
    item = replace(an_instance(), **(instance or {}))
    row = a_deployment(state=item.state, revision=revision("first"))
    given: dict[str, Any] = {"is_reachable": True, "deployment": row, "instances": [item], **place}
    member = member_of(rollout, RolloutSiteFacts(HOME, **given))
    return member.standing, member.why


def test_installed_is_what_runs_the_wanted_revision_everywhere() -> None:
    assert standing({})[0] is RolloutSiteStatus.INSTALLED
    assert standing({"is_reachable": False})[0] is RolloutSiteStatus.INSTALLED
    assert standing({}, {"running_revision": revision("older")})[0] is RolloutSiteStatus.PENDING
    assert standing({"instances": []})[0] is RolloutSiteStatus.PENDING


def test_offline_is_who_is_silent_and_not_done() -> None:
    assert standing({"is_reachable": False, "instances": []})[0] is RolloutSiteStatus.OFFLINE
    assert (
        standing({"is_reachable": False}, {"state": State.UPDATING, "running_revision": None})[0]
        is RolloutSiteStatus.OFFLINE
    )


def test_left_is_what_was_deleted_or_overtaken() -> None:
    assert standing({"deployment": None}) == (RolloutSiteStatus.LEFT, "it was deleted there")
    assert standing({"is_overtaken": True}) == (RolloutSiteStatus.LEFT, "something newer was deployed there")


def test_what_turned_unhealthy_while_it_is_watched_is_failed() -> None:
    told = standing({}, {"unhealthy": Unhealthy(NOW, "web answers 500")})
    assert told == (RolloutSiteStatus.FAILED, "it is unhealthy: web answers 500")


def test_rolled_back_is_failed() -> None:
    told = standing({}, {"rejected_revision": revision("first"), "failure": FAILURE})
    assert told == (RolloutSiteStatus.FAILED, "it was rolled back: it answered 500 (HEALTH_CHECK_FAILED)")
    assert standing({}, {"state": State.ROLLINGBACK})[0] is RolloutSiteStatus.FAILED
    assert standing({}, {"rejected_revision": revision("older")})[0] is RolloutSiteStatus.INSTALLED


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"attempt": 1, "next_at": NOW}, RolloutSiteStatus.PENDING),  # a retry follows
        ({"attempt": 1}, RolloutSiteStatus.FAILED),  # the site does no more by itself: its deadline has passed, say
        ({"attempt": 1, "failure": Failure("NODE_OFFLINE", "gone")}, RolloutSiteStatus.PENDING),  # it may come back
        ({"attempt": 3}, RolloutSiteStatus.FAILED),
        (
            {"attempt": 1, "next_at": LONG_AGO, "updated_at": LONG_AGO},
            RolloutSiteStatus.PENDING,
        ),  # a site whose clock is wrong
        ({"attempt": 1, "node_id": ""}, RolloutSiteStatus.FAILED),  # no node can take it
        ({"attempt": 1, "failure": Failure("UNSUPPORTED_TYPE", "no helm here")}, RolloutSiteStatus.FAILED),
        ({"attempt": 3, "revision": revision("older")}, RolloutSiteStatus.PENDING),  # the failure of the one before
    ],
)
def test_a_failure_counts_when_no_retry_can_mend_it(changes: dict[str, Any], expected: RolloutSiteStatus) -> None:
    failed = {"state": State.FAILED, "running_revision": None, "failure": FAILURE, **changes}
    assert standing({}, failed, policy=PolicyOverrides(retries_max=2))[0] is expected


@pytest.mark.parametrize(("known", "expected"), [(49.0, RolloutSiteStatus.PENDING), (51.0, RolloutSiteStatus.FAILED)])
@pytest.mark.parametrize("code", ["IMAGE_PULL_FAILED", "NODE_OFFLINE"])
def test_a_retry_that_does_not_come_is_waited_for_so_long(
    known: float, expected: RolloutSiteStatus, code: str
) -> None:
    failed = {
        "state": State.FAILED, "running_revision": None, "next_at": NOW, "attempt": 1,
        "failure": Failure(code, "it broke"),
    }  # fmt: skip
    place = {"failing_seconds": {an_instance().node_id: known}}
    assert standing(place, failed, policy=PolicyOverrides(backoff_seconds=10.0))[0] is expected


def test_a_site_that_was_not_given_it_waits_unless_it_was_overtaken() -> None:
    rollout = a_rollout((ALL, None))
    place = RolloutSiteFacts(SiteName("other"), is_reachable=False)
    assert member_of(rollout, place).standing is RolloutSiteStatus.WAITING
    assert member_of(rollout, replace(place, is_overtaken=True)).standing is RolloutSiteStatus.LEFT


HOLD = Hold(HOME, None, "night shift", "anna", NOW, NOW + timedelta(hours=8))
WORKING = {"state": State.UPDATING, "running_revision": revision("older")}
BEHIND = {"revision": revision("older"), "running_revision": revision("older")}
UNDER_HOLD: list[tuple[str, dict[str, Any], dict[str, Any], RolloutSiteStatus]] = [
    # what is seen of the site                     and of the instance      how it stands
    ("it has it already",                {},                     {},       RolloutSiteStatus.INSTALLED),
    ("it has not begun",                 {},                     BEHIND,   RolloutSiteStatus.HELD),
    ("nothing of it is there yet",       {"instances": []},      {},       RolloutSiteStatus.HELD),
    ("it was at work before the hold",   {},                     WORKING,  RolloutSiteStatus.PENDING),
    ("it is silent too",                 {"is_reachable": False}, BEHIND,  RolloutSiteStatus.OFFLINE),
    ("it was taken over",                {"is_overtaken": True}, BEHIND,   RolloutSiteStatus.LEFT),
]  # fmt: skip


@pytest.mark.parametrize(("place", "instance", "expected"), [row[1:] for row in UNDER_HOLD], ids=[
    row[0] for row in UNDER_HOLD
])  # fmt: skip
def test_held_is_who_waits_for_the_end_of_a_hold(
    place: dict[str, Any], instance: dict[str, Any], expected: RolloutSiteStatus
) -> None:
    found, why = standing({**place, "hold": HOLD}, instance)
    assert found is expected
    assert (why == "held until 2026-03-01 20:00 UTC by anna: night shift") == (expected is RolloutSiteStatus.HELD)


def test_a_held_site_whose_turn_has_not_come_says_so() -> None:
    member = member_of(a_rollout((ALL, None)), RolloutSiteFacts(SiteName("other"), is_reachable=True, hold=HOLD))
    assert (member.standing, member.can_answer, "night shift" in member.why) == (
        RolloutSiteStatus.WAITING,
        False,
        True,
    )


def test_what_has_no_node_has_failed_whether_its_older_release_runs_on_or_not() -> None:
    lacking = Failure("NO_ELIGIBLE_NODE", "no node can take 2.0.0: node-a is drained")
    older = {"state": State.FAILED, "failure": lacking, "running_revision": revision("older")}
    just_seen = {"failing_seconds": {an_instance().node_id: 0.0}}
    assert standing(just_seen, older) == (RolloutSiteStatus.FAILED, str(lacking))
    assert standing(just_seen, older | {"node_id": UNPLACED, "running_revision": None})[0] is RolloutSiteStatus.FAILED


def test_going_back_from_an_older_revision_says_nothing_about_the_wanted_one() -> None:
    before = {"state": State.ROLLINGBACK, "rejected_revision": revision("older"), "failure": FAILURE}
    assert standing({}, before)[0] is RolloutSiteStatus.PENDING
    assert standing({}, before | {"rejected_revision": revision("first")})[0] is RolloutSiteStatus.FAILED
