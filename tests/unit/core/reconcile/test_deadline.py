"""What a change has taken, and when a site no longer waits for an answer."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.model.deployment import Policy
from homeport.core.model.instance import Failure, Instance
from homeport.core.reconcile.deadline import overdue, spent_after
from homeport.core.reconcile.orders import OrderContext, unanswered
from homeport.vocabulary import Actor, Code, Liveness, State, Trigger
from tests.support.builders import NOW, a_desired, a_node, an_instance

UPDATING = an_instance(state=State.UPDATING)
FAILED = replace(
    an_instance(state=State.FAILED, failure=Failure(Code.EXITED, "x")), next_at=NOW + timedelta(seconds=8)
)
LOST = an_instance(state=State.FAILED, failure=Failure(Code.NODE_OFFLINE, "x"))
AGAIN = replace(UPDATING, attempt=2)
STEPS = [
    # spent   before                      after           the order took   then
    (0.0,     None,                       UPDATING,       0.0,             0.0),
    (0.0,     UPDATING,                   FAILED,         30.0,            30.0),
    (30.0,    FAILED,                     AGAIN,          0.0,             38.0),   # the wait counts too
    (38.0,    AGAIN,                      FAILED,         30.0,            68.0),
    (68.0,    FAILED,                     FAILED,         9.0,             68.0),   # late news
    (68.0,    FAILED,                     UPDATING,       0.0,             0.0),    # another revision
    (68.0,    AGAIN,                      an_instance(),  5.0,             0.0),
    (68.0,    AGAIN,                      LOST,           90.0,            0.0),    # it waits for its node
    (0.0,     LOST,                       AGAIN,          0.0,             0.0),
]  # fmt: skip


@pytest.mark.parametrize(("spent", "before", "after", "elapsed", "then"), STEPS)
def test_attempts_and_the_waits_between_them_add_up(
    spent: float, before: Instance | None, after: Instance, elapsed: float, then: float
) -> None:
    assert spent_after(spent, before, after, elapsed) == pytest.approx(then)


WANTED = replace(a_desired(), policy=Policy(deadline_seconds=300.0))
ANSWERS = [
    # state             liveness         waited   spent   given up as
    (State.UPDATING,    Liveness.LIVE,   359.0,   0.0,    None),
    (State.UPDATING,    Liveness.LIVE,   361.0,   0.0,    Code.TIMEOUT),
    (State.INSTALLING,  Liveness.LIVE,   361.0,   0.0,    Code.TIMEOUT),
    (State.ROLLINGBACK, Liveness.LIVE,   361.0,   0.0,    Code.TIMEOUT),
    (State.UPDATING,    Liveness.LIVE,   161.0,   200.0,  Code.TIMEOUT),        # it had 100 s left
    (State.UPDATING,    Liveness.STALE,  9999.0,  0.0,    None),                # it may be lost
    (State.UPDATING,    Liveness.LOST,   9999.0,  0.0,    None),
    (State.DELETING,    Liveness.LIVE,   359.0,   0.0,    None),
    (State.DELETING,    Liveness.LIVE,   361.0,   0.0,    Code.REMOVE_FAILED),
    (State.INSTALLED,   Liveness.LIVE,   9999.0,  0.0,    None),
    (State.FAILED,      Liveness.LIVE,   9999.0,  0.0,    None),
]  # fmt: skip


@pytest.mark.parametrize(("state", "liveness", "waited", "spent", "code"), ANSWERS)
def test_an_answer_that_does_not_come_is_waited_for_so_long(
    state: State, liveness: Liveness, waited: float, spent: float, code: Code | None
) -> None:
    failure = overdue(
        an_instance(state=state),
        WANTED,
        a_node(liveness=liveness),
        waited_seconds=waited,
        spent_seconds=spent,
        margin_seconds=60.0,
    )
    assert (None if failure is None else failure.code) == code
    if failure is not None:
        assert failure.message.startswith("node one is there but has not answered for ")


def test_what_follows_silence_is_what_follows_any_failure() -> None:
    failure = Failure(Code.TIMEOUT, "node one is there but has not answered for 6m1s; 5m were allowed")
    policy = Policy(deadline_seconds=300.0, backoff_seconds=10.0)
    back = unanswered(UPDATING, failure, OrderContext(NOW, policy, can_roll_back=True, spent_seconds=361.0))
    assert (back.trigger, back.actor, back.failure, back.next_at) == (
        Trigger.GAVE_UP, Actor.SITE, failure, NOW,
    )  # fmt: skip
    left = unanswered(UPDATING, failure, OrderContext(NOW, policy, can_roll_back=False, spent_seconds=361.0))
    assert left.next_at is None
    assert left.reason == f"{failure.message}; gave up after 1 attempt: the deadline of 5m has passed"
    removal = unanswered(replace(UPDATING, state=State.DELETING), failure, OrderContext(NOW, policy))
    assert removal.next_at is None
