"""A site that has lost its database, or has an older copy of it, believes nodes that know more."""

from dataclasses import replace

import pytest

from homeport.core.model.instance import Failure, Instance, RecordedRollback
from homeport.core.model.order import Held, Rejection
from homeport.core.reconcile.held import recognise, restore_rollback, without_release
from homeport.vocabulary import Code, DeploymentId, Digest, Generation, Incarnation, NodeId, OrderKind, State
from tests.support.builders import NOW, an_instance

KEY, NODE = DeploymentId("d"), NodeId("one")
GOOD, BAD = Digest("sha256:good"), Digest("sha256:bad")
FAILURE = Failure(Code.HEALTH_CHECK_FAILED, "it answered 500", "web")
RUNS = Held(KEY, Generation(9), OrderKind.APPLY, GOOD, done=True, good_revision=GOOD)
WENT_BACK = replace(RUNS, rejection=Rejection(BAD, FAILURE))


def seen(
    held: Held, instance: Instance | None, *, wanted: Digest | None = BAD, is_new_site: bool = False
) -> Instance | None:
    return recognise(held, NODE, instance, wanted, next_incarnation=Incarnation(7), is_new_site=is_new_site, now=NOW)


def known(generation: int) -> Instance:
    return replace(an_instance(), generation=Generation(generation), state=State.UPDATING, revision=BAD)


def test_what_the_site_knows_as_well_is_left_alone() -> None:
    assert seen(WENT_BACK, replace(known(9), revision=GOOD)) is None
    assert seen(WENT_BACK, known(10)) is None


def test_another_order_of_the_same_number_is_one_that_the_site_has_forgotten() -> None:
    taken = seen(RUNS, known(9))
    assert taken is not None
    assert (taken.state, taken.generation, taken.revision) == (State.INSTALLED, 9, GOOD), (
        "so that BAD is ordered again"
    )
    leaving = replace(known(9), state=State.DELETING)
    assert seen(RUNS, leaving) is not None
    removed = replace(RUNS, kind=OrderKind.REMOVE, revision=None)
    assert seen(removed, leaving) is None
    assert seen(removed, known(9)) is not None


def test_an_update_that_was_refused_without_an_order_is_known_as_well() -> None:
    refused = replace(known(9), state=State.FAILED, failure=Failure(Code.NO_ELIGIBLE_NODE, "no"))
    assert seen(RUNS, refused) is None


def test_what_failed_on_the_way_to_the_good_release_is_not_installed() -> None:
    for held, state in ((RUNS, State.UPDATING), (WENT_BACK, State.ROLLINGBACK)):
        taken = seen(replace(held, failed=True), known(3))
        assert taken is not None
        assert (taken.state, taken.generation, taken.revision) == (state, 9, GOOD), "its result is still to come"


def test_a_newer_order_that_went_back_stays_gone_back() -> None:
    taken = seen(WENT_BACK, known(3))
    assert taken is not None
    assert (taken.state, taken.generation, taken.revision) == (State.INSTALLED, 9, GOOD)
    assert (taken.running_revision, taken.rejected_revision, taken.failure) == (GOOD, BAD, FAILURE)
    assert taken.incarnation == known(3).incarnation


def test_a_rollback_of_what_git_wants_counts_though_the_site_knows_nothing_of_it() -> None:
    taken = seen(WENT_BACK, None)
    assert taken is not None and (taken.rejected_revision, taken.incarnation) == (BAD, 7)
    assert seen(WENT_BACK, None, wanted=Digest("sha256:newer")) is None
    assert seen(RUNS, None) is None, "what the site does not know is placed as if it was not there"


def test_a_new_database_takes_over_what_runs_so_that_it_can_be_gone_back_to() -> None:
    taken = seen(RUNS, None, is_new_site=True)
    assert taken is not None and (taken.state, taken.running_revision) == (State.INSTALLED, GOOD)
    assert seen(RUNS, None, wanted=None, is_new_site=True) is None, "an orphan is nobody's instance"


@pytest.mark.parametrize(
    ("held", "state"),
    [
        (replace(RUNS, done=False), State.UPDATING),
        (replace(RUNS, revision=BAD), State.UPDATING),
        (replace(RUNS, good_revision=None), State.INSTALLING),
        (replace(WENT_BACK, done=False), State.ROLLINGBACK),
        (replace(RUNS, kind=OrderKind.REMOVE, revision=None, done=True), State.DELETED),
        (replace(RUNS, kind=OrderKind.REMOVE, revision=None, done=False), State.DELETING),
    ],
)
def test_what_has_not_ended_well_is_under_way_until_the_node_says_so_again(held: Held, state: State) -> None:
    taken = seen(held, known(3))
    assert taken is not None and taken.state is state


def test_a_removal_of_what_the_site_does_not_know_means_nothing() -> None:
    assert seen(replace(RUNS, kind=OrderKind.REMOVE, revision=None), None, is_new_site=True) is None


ROLLED_BACK = RecordedRollback(KEY, NODE, BAD, GOOD, FAILURE)


def again(instance: Instance | None, *, wanted: Digest | None = BAD) -> Instance | None:
    return restore_rollback(
        ROLLED_BACK,
        instance,
        wanted,
        next_generation=Generation(20),
        next_incarnation=Incarnation(7),
        now=NOW,
    )


def test_a_rollback_that_only_central_remembers_is_made_again() -> None:
    taken = again(None)
    assert taken is not None
    assert (taken.state, taken.generation, taken.incarnation) == (State.ROLLINGBACK, 20, 7)
    assert (taken.revision, taken.rejected_revision, taken.failure) == (GOOD, BAD, FAILURE)


@pytest.mark.parametrize("state", [State.INSTALLING, State.UPDATING, State.FAILED])
def test_an_order_that_went_out_before_central_answered_is_taken_back(state: State) -> None:
    taken = again(replace(known(9), state=state))
    assert taken is not None
    assert (taken.state, taken.generation, taken.revision) == (State.ROLLINGBACK, 20, GOOD)


def test_an_older_copy_that_runs_the_release_before_does_not_leave_it() -> None:
    runs = replace(known(9), state=State.INSTALLED, revision=GOOD, running_revision=GOOD)
    assert again(runs) == replace(runs, rejected_revision=BAD, failure=FAILURE, rejected_for=FAILURE)


@pytest.mark.parametrize("wanted", [GOOD, None])
def test_a_rollback_is_past_when_git_has_another_revision(wanted: Digest | None) -> None:
    assert again(None, wanted=wanted) is None


@pytest.mark.parametrize(
    "instance",
    [
        replace(known(9), rejected_revision=BAD),
        replace(known(9), state=State.INSTALLED, running_revision=BAD),
        replace(known(9), state=State.DELETING),
    ],
    ids=["it is known", "it runs well by now", "it is on its way out"],
)
def test_what_this_site_knows_better_than_central_stays(instance: Instance) -> None:
    assert again(instance) is None


def test_nothing_is_applied_where_the_release_before_is_not_known_any_more() -> None:
    taken = again(None)
    assert taken is not None
    waits = without_release(taken)
    assert (waits.state, waits.rejected_revision, waits.next_at) == (State.FAILED, BAD, None)
    assert waits.failure is not None and "not in Git any more" in waits.failure.message
