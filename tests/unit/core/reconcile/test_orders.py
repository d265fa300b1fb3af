"""Orders are derived from an instance, and results say what they mean for it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.lifecycle.replay import replay
from homeport.core.model.deployment import Policy
from homeport.core.model.instance import Failure
from homeport.core.model.order import Held, Result
from homeport.core.reconcile.orders import OrderContext, current_order, needs_order, outcome
from homeport.vocabulary import Actor, Code, Generation, OrderKind, State, Trigger
from tests.support.builders import NOW, a_desired, an_instance

KNOWN = OrderContext(NOW)


def a_result(**changes: object) -> Result:
    base = Result(an_instance().deployment_id, Generation(7), OrderKind.APPLY, succeeded=True, at=NOW)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_an_install_under_way_stands_as_an_order_to_apply() -> None:
    order = current_order(an_instance(state=State.INSTALLING), a_desired())
    assert order is not None
    assert (order.kind, order.generation, order.release) == (OrderKind.APPLY, 7, a_desired().release)


def test_a_removal_stands_without_a_release_and_keeps_the_wish_about_images() -> None:
    desired = replace(a_desired(), remove_images=True)
    order = current_order(an_instance(state=State.DELETING), desired)
    assert order is not None
    assert (order.kind, order.release, order.remove_images) == (OrderKind.REMOVE, None, True)
    without_file = current_order(an_instance(state=State.DELETING), None)
    assert without_file is not None
    assert not without_file.remove_images


def test_data_goes_only_with_a_removal_that_says_so() -> None:
    going, desired = an_instance(state=State.DELETING), a_desired()
    stays, goes = current_order(going, desired), current_order(going, desired, remove_data=True)
    assert stays is not None and stays.remove_data_of == ""
    assert goes is not None and goes.remove_data_of == desired.name
    applied = current_order(an_instance(state=State.INSTALLING), desired, remove_data=True)
    assert applied is not None and applied.remove_data_of == ""


def test_nothing_stands_for_a_failed_instance_or_an_outdated_one() -> None:
    assert current_order(an_instance(state=State.FAILED), a_desired()) is None
    assert current_order(an_instance(state=State.INSTALLED), a_desired(at="second")) is None


def test_a_node_hears_an_order_until_it_has_ended_it() -> None:
    order = current_order(an_instance(), a_desired())
    assert order is not None
    held = Held(order.deployment_id, order.generation, OrderKind.APPLY, a_desired().revision, done=True)
    assert not needs_order(order, held, State.INSTALLED)
    assert needs_order(order, held, State.UPDATING), "its answer may be lost"
    assert needs_order(order, None, State.INSTALLED)
    assert needs_order(order, replace(held, done=False), State.INSTALLED)
    assert needs_order(order, replace(held, generation=Generation(6)), State.INSTALLED)


def test_success_means_healthy_and_failure_is_passed_on_unchanged() -> None:
    busy = an_instance(state=State.INSTALLING)
    (healthy,) = outcome(a_result(), busy, KNOWN)
    assert (healthy.trigger, healthy.actor) == (Trigger.HEALTHY, Actor.NODE)
    failure = Failure(Code.IMAGE_PULL_FAILED, "no such image", "web")
    (failed,) = outcome(a_result(succeeded=False, failure=failure), busy, KNOWN)
    assert (failed.trigger, failed.failure) == (Trigger.GAVE_UP, failure)


def test_only_deleted_with_exit_code_zero_confirms_a_removal() -> None:
    leaving = an_instance(state=State.DELETING)
    (done,) = outcome(a_result(kind=OrderKind.REMOVE, deleted=True), leaving, KNOWN)
    assert done.trigger is Trigger.REMOVED
    (odd,) = outcome(a_result(kind=OrderKind.REMOVE, deleted=True, exit_code=1), leaving, KNOWN)
    assert odd.trigger is Trigger.GAVE_UP


def test_the_result_of_an_older_order_means_nothing() -> None:
    assert outcome(a_result(generation=Generation(6)), an_instance(state=State.UPDATING), KNOWN) == ()


def test_a_repeated_success_is_no_news() -> None:
    assert outcome(a_result(), an_instance(state=State.INSTALLED), KNOWN) == ()


def test_an_installed_release_that_could_not_be_applied_again_is_a_failed_update_with_a_retry() -> None:
    failure = Failure(Code.HEALTH_CHECK_FAILED, "GET /healthz answered 500", "web")
    installed = replace(an_instance(state=State.INSTALLED), attempt=3)
    known = OrderContext(NOW, Policy(backoff_seconds=10.0, retries_max=3))
    changed, failed = outcome(a_result(succeeded=False, failure=failure), installed, known)
    assert (changed.trigger, changed.actor, changed.revision) == (Trigger.CHANGED, Actor.SITE, installed.revision)
    assert (failed.trigger, failed.actor, failed.failure) == (Trigger.GAVE_UP, Actor.NODE, failure)
    assert failed.next_at is not None, "earlier attempts do not count"
    after = installed
    for transition in (changed, failed):
        after, _ = replay(after, transition)
    assert (after.state, after.failure, after.generation) == (State.FAILED, failure, installed.generation)


@pytest.mark.parametrize("node_clock", [timedelta(0), timedelta(days=-1), timedelta(days=365)])
def test_times_are_the_sites_own_whatever_the_nodes_clock_says(node_clock: timedelta) -> None:
    failure = Failure(Code.IMAGE_PULL_FAILED, "no such image", "web")
    result = a_result(succeeded=False, failure=failure, at=NOW + node_clock)
    known = OrderContext(NOW, Policy(backoff_seconds=10.0))
    (step,) = outcome(result, an_instance(state=State.INSTALLING), known)
    assert step.next_at is not None
    assert step.at == NOW
    assert NOW + timedelta(seconds=5) <= step.next_at <= NOW + timedelta(seconds=10)


def test_an_attempt_gets_what_is_left_of_the_deadline() -> None:
    desired = replace(a_desired(), policy=Policy(deadline_seconds=300.0))
    for spent, left in ((0.0, 300.0), (120.0, 180.0), (400.0, 1.0)):
        order = current_order(an_instance(state=State.UPDATING), desired, spent_seconds=spent)
        assert order is not None and order.limit_seconds == left
