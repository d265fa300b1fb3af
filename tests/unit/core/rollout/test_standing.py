"""How a site stands in a rollout, read from its deployment and instances."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from homeport.core.model.deployment import Policy
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
    member = member_of(rollout, Place(HOME, **given), NOW)
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
        ({"attempt": 1}, Standing.PENDING),  # a retry follows
        ({"attempt": 3}, Standing.FAILED),
        ({"attempt": 1, "updated_at": LONG_AGO}, Standing.FAILED),  # it should have followed long ago
        ({"attempt": 1, "node_id": ""}, Standing.FAILED),  # no node can take it
        ({"attempt": 1, "failure": Failure("UNSUPPORTED_TYPE", "no helm here")}, Standing.FAILED),
        ({"attempt": 3, "revision": revision("older")}, Standing.PENDING),  # the failure of the one before
    ],
)
def test_a_failure_counts_when_no_retry_can_mend_it(changes: dict[str, Any], expected: Standing) -> None:
    failed = {"state": State.FAILED, "running_revision": None, "failure": FAILURE, **changes}
    assert standing({}, failed, policy=Policy(retries_max=2))[0] is expected


def test_a_site_that_was_not_given_it_waits_unless_it_was_overtaken() -> None:
    rollout = a_rollout((ALL, None))
    place = Place(SiteName("other"), is_reachable=False)
    assert member_of(rollout, place, NOW).standing is Standing.WAITING
    assert member_of(rollout, replace(place, is_overtaken=True), NOW).standing is Standing.LEFT
