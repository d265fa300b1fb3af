"""What a site does by itself after a release has failed on a node: retry, roll back, or leave it to the operator.

Retry what did no harm; roll back what did. A release that could not even be pulled has touched nothing, so a later
retry costs nothing. One that replaced its predecessor and is not healthy has taken a service down: where the policy
allows it the predecessor is restored at once, and the release is not retried.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from homeport.core.model.deployment import Policy
from homeport.core.model.instance import Failure, Instance
from homeport.core.reconcile.demand import AWAITED, HARMLESS
from homeport.core.values.backoff import BackoffPolicy, chance_of
from homeport.core.values.durations import duration_text
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Code

BACKOFF_SECONDS_MAX: Final = 300.0

NOT_RETRYABLE: Final = frozenset(
    {
        Code.UNSUPPORTED_TYPE,
        Code.UNSUPPORTED_KIND,
        Code.NOT_ALLOWED,
        Code.PREFLIGHT_FAILED,
        Code.INVALID_ORDER,
        Code.UNKNOWN_KIND,
    }
)
"""A retry cannot help."""
WAITS: Final = AWAITED | {Code.REMOVE_FAILED}
"""These end when the missing thing becomes available; the plan looks for it."""


class Recovery(StrEnum):
    RETRY = "retry"
    ROLL_BACK = "go back"
    GIVE_UP = "give up"
    """Attempts are left, but no time."""


@dataclass(frozen=True, slots=True)
class NextAttempt:
    recovery: Recovery
    why: str
    delay_seconds: float = 0.0


def after_failure(
    instance: Instance, failure: Failure, policy: Policy, *, can_roll_back: bool, spent_seconds: float = 0.0
) -> NextAttempt | None:
    """`instance` is as it was while the order ran; None when an operator has to act.

    `can_roll_back` says that a release which was healthy here before is still known; `spent_seconds` is the time the
    change has taken up to this failure. An attempt that could not begin before the deadline is not made.
    """
    if failure.code in WAITS:
        return None
    attempt, attempts = instance.attempt, policy.retries_max + 1
    again = f"attempt {attempt + 1} of {attempts}"
    is_back = instance.rejected_revision is not None
    may_go_back = can_roll_back and policy.rollback and not is_back
    if may_go_back and failure.code not in HARMLESS:
        return NextAttempt(
            Recovery.ROLL_BACK, f"the last good release is restored, since this one failed: {failure.code}"
        )
    may_retry = failure.code not in NOT_RETRYABLE and attempt < attempts
    delay = delay_seconds(instance, policy)
    if may_retry and spent_seconds + delay < policy.deadline_seconds:
        recovery = Recovery.ROLL_BACK if is_back else Recovery.RETRY
        return NextAttempt(recovery, f"{'going back, ' if is_back else ''}{again}", delay)
    late = f"the deadline of {duration_text(policy.deadline_seconds)} has passed"
    if may_go_back:
        tried = "this one cannot run here" if failure.code in NOT_RETRYABLE else f"{_attempts(attempts)} failed"
        tried = f"{late} after {_attempts(attempt)}" if may_retry else tried
        return NextAttempt(Recovery.ROLL_BACK, f"the last good release is restored, since {tried}: {failure.code}")
    return NextAttempt(Recovery.GIVE_UP, f"gave up after {_attempts(attempt)}: {late}") if may_retry else None


def _attempts(count: int) -> str:
    return f"{count} attempt" if count == 1 else f"{count} attempts"


def delay_seconds(instance: Instance, policy: Policy) -> float:
    """Doubles with each attempt, and lies between half and all of that: different for each instance, so that many
    instances spread out, and the same for the same one, so that it can be shown and tested."""
    backoff = BackoffPolicy(policy.backoff_seconds, BACKOFF_SECONDS_MAX)
    seed = f"{instance.deployment_id}/{instance.node_id}/{instance.incarnation}/{instance.attempt}"
    return backoff.delay_seconds(instance.attempt, chance=chance_of(seed))


def is_due(next_at: datetime, now: datetime) -> bool:
    """A time further ahead than any of our delays means that the clock was set back: then it is due."""
    return next_at <= now or next_at - now > timedelta(seconds=BACKOFF_SECONDS_MAX)
