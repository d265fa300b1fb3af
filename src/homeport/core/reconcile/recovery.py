"""What a site does by itself after a release has failed on a node: try again, go back, or leave it to a person.

Retry what did no harm; go back from what did. A release that could not even be fetched has touched nothing, so it
costs nothing to try again later. One that displaced its predecessor and is not healthy has taken a service down:
where the policy allows it the predecessor comes back at once, and the release is not tried again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from zlib import crc32

from homeport.core.durations import duration_text
from homeport.core.model.deployment import Policy
from homeport.core.model.instance import Failure, Instance
from homeport.vocabulary import Code

BACKOFF_SECONDS_MAX: Final = 300.0

HARMLESS: Final = frozenset(
    {
        Code.COMPONENT_FETCH_FAILED,
        Code.IMAGE_PULL_FAILED,
        Code.ENGINE_UNREACHABLE,
        Code.DISK_FULL,
        Code.UNSUPPORTED_TYPE,
        Code.UNSUPPORTED_KIND,
    }
)
"""These come up before anything that runs is touched; a full disk nearly always does, and going back needs it too."""
HOPELESS: Final = frozenset({Code.UNSUPPORTED_TYPE, Code.UNSUPPORTED_KIND})
"""Trying again cannot help."""
WAITS: Final = frozenset({Code.NODE_OFFLINE, Code.NO_ELIGIBLE_NODE, Code.SECRET_MISSING, Code.REMOVE_FAILED})
"""These end when what is missing is there; the plan looks for it."""


class Way(StrEnum):
    RETRY = "retry"
    GO_BACK = "go back"
    GIVE_UP = "give up"
    """There would be attempts left, but no time."""


@dataclass(frozen=True, slots=True)
class Next:
    way: Way
    why: str
    delay_seconds: float = 0.0


def after_failure(
    instance: Instance, failure: Failure, policy: Policy, *, can_go_back: bool, spent_seconds: float = 0.0
) -> Next | None:
    """`instance` is as it was while it worked on what failed; None when nothing more is done without a person.

    `can_go_back` says that a release which was healthy here before is still known; `spent_seconds` is what the change
    has taken up to this failure. An attempt that could not begin before the deadline is not made.
    """
    if failure.code in WAITS:
        return None
    attempt, attempts = instance.attempt, policy.retries_max + 1
    again = f"attempt {attempt + 1} of {attempts}"
    is_back = instance.rejected_revision is not None
    may_go_back = can_go_back and policy.rollback and not is_back
    if may_go_back and failure.code not in HARMLESS:
        return Next(Way.GO_BACK, f"the release that was good before comes back, for this one failed: {failure.code}")
    may_retry = failure.code not in HOPELESS and attempt < attempts
    delay = delay_seconds(instance, policy)
    if may_retry and spent_seconds + delay < policy.deadline_seconds:
        way = Way.GO_BACK if is_back else Way.RETRY
        return Next(way, f"{'going back, ' if is_back else ''}{again}", delay)
    late = f"the deadline of {duration_text(policy.deadline_seconds)} has passed"
    if may_go_back:
        tried = "this one cannot run here" if failure.code in HOPELESS else f"{attempts} attempts failed"
        tried = f"{late} after {_attempts(attempt)}" if may_retry else tried
        return Next(Way.GO_BACK, f"the release that was good before comes back, for {tried}: {failure.code}")
    return Next(Way.GIVE_UP, f"gave up after {_attempts(attempt)}: {late}") if may_retry else None


def _attempts(count: int) -> str:
    return f"{count} attempt" if count == 1 else f"{count} attempts"


def delay_seconds(instance: Instance, policy: Policy) -> float:
    """Doubles with each attempt, and lies between half and all of that: different for each instance, so that a crowd
    of them spreads out, and the same for the same one, so that it can be told and tested."""
    ceiling = min(BACKOFF_SECONDS_MAX, policy.backoff_seconds * 2.0 ** min(instance.attempt - 1, 30))
    seed = f"{instance.deployment_id}/{instance.node_id}/{instance.incarnation}/{instance.attempt}"
    return ceiling * (0.5 + crc32(seed.encode()) / 2**33)


def is_due(next_at: datetime, now: datetime) -> bool:
    """A time further ahead than any wait of ours means that the clock was set back: then it is due."""
    return next_at <= now or next_at - now > timedelta(seconds=BACKOFF_SECONDS_MAX)
