"""What follows a failure: each rule, and the whole way from a bad release back to the good one."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.lifecycle.replay import replay
from homeport.core.model.deployment import Desired, Policy
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.order import Result
from homeport.core.reconcile.deadline import spent_after
from homeport.core.reconcile.orders import OrderContext, current_order, outcome
from homeport.core.reconcile.plan import Move, View, can_roll_back, plan, wanted_of
from homeport.core.reconcile.recovery import (
    BACKOFF_SECONDS_MAX,
    NextAttempt,
    Recovery,
    after_failure,
    delay_seconds,
    is_due,
)
from homeport.vocabulary import Actor, Code, OrderKind, State
from homeport.vocabulary import Trigger as H
from tests.support.builders import NOW, a_desired, a_node, an_instance

GOOD, BAD = a_desired(at="good"), a_desired(at="bad")
POLICY = Policy(retries_max=2, backoff_seconds=10.0)


def updating(attempt: int = 1, **more: object) -> Instance:
    base = an_instance(state=State.UPDATING, at="bad")
    return replace(base, running_revision=GOOD.revision, attempt=attempt, **more)  # type: ignore[arg-type]


def recovery(
    instance: Instance, code: Code, policy: Policy = POLICY, *, can_roll_back: bool = True
) -> Recovery | None:
    following = after_failure(instance, Failure(code, "no"), policy, can_roll_back=can_roll_back)
    return None if following is None else following.recovery


@pytest.mark.parametrize("code", [Code.HEALTH_CHECK_FAILED, Code.EXITED, Code.CREATE_FAILED, Code.TIMEOUT])
def test_what_took_a_service_down_is_gone_back_from_at_once(code: Code) -> None:
    assert recovery(updating(), code) is Recovery.ROLL_BACK


@pytest.mark.parametrize(
    "code", [Code.IMAGE_PULL_FAILED, Code.COMPONENT_FETCH_FAILED, Code.ENGINE_UNREACHABLE, Code.DISK_FULL]
)
def test_what_touched_nothing_is_tried_again_before_going_back(code: Code) -> None:
    assert [recovery(updating(attempt), code) for attempt in (1, 2, 3)] == [
        Recovery.RETRY,
        Recovery.RETRY,
        Recovery.ROLL_BACK,
    ]


def test_without_rollback_every_failure_is_tried_again_and_then_left() -> None:
    policy = replace(POLICY, rollback=False)
    assert [recovery(updating(attempt), Code.EXITED, policy) for attempt in (1, 2, 3)] == [
        Recovery.RETRY,
        Recovery.RETRY,
        None,
    ]


def test_a_first_install_has_nothing_to_go_back_to() -> None:
    first = an_instance(state=State.INSTALLING, runs=False)
    assert recovery(first, Code.EXITED, can_roll_back=False) is Recovery.RETRY
    assert recovery(replace(first, attempt=3), Code.EXITED, can_roll_back=False) is None


def test_what_cannot_ever_run_here_is_not_tried_again() -> None:
    assert recovery(updating(), Code.UNSUPPORTED_TYPE) is Recovery.ROLL_BACK
    assert recovery(updating(), Code.UNSUPPORTED_TYPE, can_roll_back=False) is None


@pytest.mark.parametrize("code", [Code.NODE_OFFLINE, Code.SECRET_MISSING, Code.NO_ELIGIBLE_NODE, Code.REMOVE_FAILED])
def test_what_waits_for_something_is_left_to_wait(code: Code) -> None:
    assert recovery(updating(), code) is None


def test_going_back_is_itself_tried_again_and_then_left() -> None:
    back = replace(updating(), state=State.ROLLINGBACK, revision=GOOD.revision, rejected_revision=BAD.revision)
    assert [recovery(replace(back, attempt=n), Code.EXITED, can_roll_back=False) for n in (1, 2, 3)] == [
        Recovery.ROLL_BACK,
        Recovery.ROLL_BACK,
        None,
    ]


def test_the_wait_doubles_up_to_a_limit_and_differs_between_nodes() -> None:
    waits = [delay_seconds(updating(attempt), POLICY) for attempt in range(1, 12)]
    ceilings = [min(BACKOFF_SECONDS_MAX, 10.0 * 2**n) for n in range(11)]
    assert all(ceiling / 2 <= wait <= ceiling for wait, ceiling in zip(waits, ceilings, strict=True))
    assert len({delay_seconds(replace(updating(), node_id=name), POLICY) for name in "abcdef"}) == 6  # type: ignore[arg-type]


def test_a_clock_that_was_set_back_does_not_put_off_what_is_due() -> None:
    assert is_due(NOW, NOW)
    assert not is_due(NOW + timedelta(seconds=5), NOW)
    assert is_due(NOW + timedelta(days=1), NOW)


class Site:
    """One instance on one node, stepped as a site does it: plan, record, order, result."""

    def __init__(self, desired: Desired, instance: Instance, *past: Desired) -> None:
        self.desired, self.instance, self.now = desired, instance, NOW
        self.past = {(each.id, each.revision): each for each in past}
        self.spent = 0.0

    def plan(self) -> tuple[Move, ...]:
        view = View(
            {self.desired.id: self.desired},
            frozenset(),
            {(node := a_node()).id: node},
            {self.instance.key: self.instance},
            past=self.past,
            spent={self.instance.key: self.spent},
        )
        return plan(view, self.now)

    def move(self) -> H:
        (move,) = self.plan()
        generation = self.instance.generation + 1 if move.order else self.instance.generation
        self._step(
            Transition(
                move.deployment_id,
                move.node_id,
                self.instance.incarnation,
                move.trigger,
                Actor.SITE,
                move.why,
                self.now,
                generation,  # type: ignore[arg-type]
                move.revision,
                move.failure,
            )
        )
        return move.trigger

    def ends(self, code: Code | None = None, *, taking_seconds: float = 0.0) -> State:
        failure = None if code is None else Failure(code, "it broke")
        result = Result(
            self.desired.id, self.instance.generation, OrderKind.APPLY, failure is None, self.now, failure=failure
        )
        known = OrderContext(
            self.now, self.wanted.policy, can_roll_back(self.instance, self.past), self.spent + taking_seconds
        )
        (step,) = outcome(result, self.instance, known)
        self._step(step, taking_seconds)
        return self.instance.state

    @property
    def wanted(self) -> Desired:
        wanted = wanted_of(self.instance, self.desired, self.past)
        assert wanted is not None
        return wanted

    def _step(self, transition: Transition, elapsed_seconds: float = 0.0) -> None:
        before = self.instance
        self.instance, _ = replay(before, transition)
        self.spent = spent_after(self.spent, before, self.instance, elapsed_seconds)


def test_a_bad_release_is_rolled_back_and_not_applied_again() -> None:
    site = Site(BAD, updating(), GOOD)
    assert site.ends(Code.HEALTH_CHECK_FAILED) is State.FAILED
    assert site.instance.next_at == NOW
    assert site.move() is H.ROLLED_BACK
    assert site.instance.state is State.ROLLINGBACK
    order = current_order(site.instance, site.wanted)
    assert order is not None and order.release is not None and order.release.revision == GOOD.revision
    assert site.ends() is State.INSTALLED
    assert site.plan() == ()
    assert (site.instance.revision, site.instance.rejected_revision) == (GOOD.revision, BAD.revision)
    assert site.instance.failure == Failure(Code.HEALTH_CHECK_FAILED, "it broke")


def test_a_newer_revision_ends_the_memory_of_the_bad_one() -> None:
    site = Site(BAD, updating(), GOOD)
    site.ends(Code.HEALTH_CHECK_FAILED)
    site.move()
    site.ends()
    site.desired = a_desired(at="mended")
    assert site.move() is H.CHANGED
    assert (site.instance.state, site.instance.rejected_revision) == (State.UPDATING, None)
    assert site.ends() is State.INSTALLED
    assert site.instance.failure is None


def test_a_newer_revision_supersedes_going_back() -> None:
    site = Site(BAD, updating(), GOOD)
    site.ends(Code.EXITED)
    site.move()
    site.desired = a_desired(at="mended")
    assert site.move() is H.SUPERSEDED_UPDATE


def test_a_rollback_that_fails_is_tried_again_and_then_said_plainly() -> None:
    site = Site(replace(BAD, policy=POLICY), updating(), replace(GOOD, policy=POLICY))
    site.ends(Code.EXITED)
    for attempt in (1, 2, 3):
        site.now += timedelta(minutes=1)
        assert site.move() is H.ROLLED_BACK
        assert site.instance.attempt == attempt
        assert site.ends(Code.EXITED) is State.FAILED
    site.now += timedelta(hours=1)
    assert site.plan() == ()
    assert site.instance.next_at is None
    assert site.instance.failure == Failure(Code.EXITED, "Going back failed too: it broke")
    assert site.instance.rejected_revision == BAD.revision


@pytest.mark.parametrize("code", [Code.EXITED, Code.REMOVE_FAILED])
def test_what_was_rolled_back_at_last_says_why_it_was_and_not_what_kept_it(code: Code) -> None:
    site = Site(replace(BAD, policy=POLICY), updating(), replace(GOOD, policy=POLICY))
    site.ends(Code.HEALTH_CHECK_FAILED)
    site.move()
    assert site.ends(code) is State.FAILED
    assert site.instance.failure == Failure(code, "Going back failed too: it broke")
    site.now += timedelta(minutes=1)
    assert site.move() is H.ROLLED_BACK
    assert site.instance.state is State.ROLLINGBACK
    assert site.ends() is State.INSTALLED
    assert site.instance.failure == Failure(Code.HEALTH_CHECK_FAILED, "it broke")
    site.desired = a_desired(at="mended")
    site.move()
    assert site.instance.rejected_for is None


def test_a_flaky_install_is_tried_again_when_it_is_time_and_not_before() -> None:
    first = replace(an_instance(state=State.INSTALLING, at="bad", runs=False), attempt=1)
    site = Site(replace(BAD, policy=POLICY), first)
    for attempt in (2, 3):
        assert site.ends(Code.EXITED) is State.FAILED
        assert site.plan() == ()
        assert site.instance.next_at is not None
        site.now = site.instance.next_at
        assert site.move() is H.RETRIED_INSTALL
        assert site.instance.attempt == attempt
    assert site.ends(Code.EXITED) is State.FAILED
    site.now += timedelta(days=2)
    assert site.plan() == ()


def test_where_the_good_release_is_no_longer_known_what_is_rolled_back_stays_as_it_is() -> None:
    back = replace(an_instance(at="good"), rejected_revision=BAD.revision)
    assert Site(BAD, back).plan() == ()


def test_the_reason_names_the_attempt_and_what_still_runs() -> None:
    following = after_failure(updating(), Failure(Code.IMAGE_PULL_FAILED, "no"), POLICY, can_roll_back=True)
    assert following == NextAttempt(Recovery.RETRY, "attempt 2 of 3", following.delay_seconds if following else 0)
    result = Result(
        BAD.id, updating().generation, OrderKind.APPLY, False, NOW, Failure(Code.EXITED, "x."), release_runs=True
    )
    (told,) = outcome(result, updating(), OrderContext(NOW, POLICY))
    assert told.reason == "x. The release before it still runs."


FIVE_MINUTES = replace(POLICY, retries_max=9, deadline_seconds=300.0)
NO_PULL, BROKEN = Code.IMAGE_PULL_FAILED, Code.EXITED
BY_THE_DEADLINE = [
    # failed by   attempt  spent   may roll back what follows
    (NO_PULL,     1,       100.0,  True,         (Recovery.RETRY, "attempt 2 of 10")),
    (NO_PULL,     3,       280.0,  True,         (Recovery.ROLL_BACK, "the last good release is restored, "
                                                  "since the deadline of 5m has passed after 3 attempts: "
                                                  "IMAGE_PULL_FAILED")),
    (NO_PULL,     3,       280.0,  False,        (Recovery.GIVE_UP, "gave up after 3 attempts: the deadline of 5m "
                                                  "has passed")),
    (BROKEN,      1,       300.0,  False,        (Recovery.GIVE_UP, "gave up after 1 attempt: the deadline of 5m "
                                                  "has passed")),
    (BROKEN,      1,       300.0,  True,         (Recovery.ROLL_BACK, "the last good release is restored, "
                                                  "since this one failed: EXITED")),
    (BROKEN,      10,      300.0,  False,        None),   # its attempts are used up anyway
]  # fmt: skip


@pytest.mark.parametrize(("code", "attempt", "spent", "can_roll_back", "then"), BY_THE_DEADLINE)
def test_no_attempt_begins_after_the_deadline(
    code: Code, attempt: int, spent: float, can_roll_back: bool, then: tuple[Recovery, str] | None
) -> None:
    following = after_failure(
        updating(attempt), Failure(code, "no"), FIVE_MINUTES, can_roll_back=can_roll_back, spent_seconds=spent
    )
    assert (None if following is None else (following.recovery, following.why)) == then


def test_the_deadline_holds_for_all_attempts_together_and_its_end_is_said() -> None:
    policy = replace(POLICY, retries_max=9, deadline_seconds=100.0)
    first = replace(an_instance(state=State.INSTALLING, at="bad", runs=False), attempt=1)
    site = Site(replace(BAD, policy=policy), first)
    began, attempts = site.now, 0
    while True:
        site.now += timedelta(seconds=20)
        attempts += 1
        site.ends(Code.EXITED, taking_seconds=20.0)
        if site.instance.next_at is None:
            break
        site.now = site.instance.next_at
        assert site.move() is H.RETRIED_INSTALL
    assert 1 < attempts < 5
    assert site.now - began < timedelta(seconds=100 + 20)
    assert site.instance.failure == Failure(
        Code.EXITED, f"it broke; gave up after {attempts} attempts: the deadline of 1m40s has passed"
    )
    site.now += timedelta(days=1)
    assert site.plan() == ()


def test_going_back_has_as_long_again() -> None:
    site = Site(replace(BAD, policy=FIVE_MINUTES), updating(), replace(GOOD, policy=FIVE_MINUTES))
    site.ends(Code.HEALTH_CHECK_FAILED, taking_seconds=299.0)
    assert site.move() is H.ROLLED_BACK
    assert site.spent == 0.0
    site.ends(Code.ENGINE_UNREACHABLE, taking_seconds=100.0)
    assert site.instance.next_at is not None
