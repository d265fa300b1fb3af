"""When a replica of a pool is loaded, and when it is unloaded. Pure.

A pool's replicas are installed on their nodes; how many of them hold their model in memory follows its use, between a
minimum (zero too) and all of them; none does while the model is retired. The rules are asked in their order, the
first that applies decides, and one replica changes at a time: while one is loading, nothing else changes, so that the
effect is seen first. Unloading needs that one replica less would have been half empty for the whole idle time,
loading a queue that the loaded ones cannot work off soon: between the two nothing changes.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from homeport.core.inference.engines.handoff import Loading
from homeport.lazy_dataclass import dataclass

QUEUE_SECONDS: Final = 5.0
"""A queue that takes longer than this to work off gets one more replica."""
TASK_SECONDS_GUESS: Final = 2.0
"""Of one task, before one was measured."""
SPARE_SHARE: Final = 0.5
"""Of the slots that would remain: more must have been free before one is given up."""


class ScalingAction(StrEnum):
    LOAD = "load"
    UNLOAD = "unload"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    loaded_min: int
    idle_seconds: float
    is_retired: bool = False
    """Its model takes no tasks any more: what it has taken is finished, and then none is loaded."""
    is_overdue: bool = False
    """What a retired model has taken should have been finished by now: it is unloaded all the same."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    id: str
    loading: Loading
    slots: int = 1
    busy: int = 0
    failed_until: float = 0.0
    """Loading or unloading it failed; it is not tried again before."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """By all task planes together."""

    waiting: int = 0
    busy: int = 0
    used_at: float = 0.0
    """When a task last began, waited or ended."""
    task_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    action: ScalingAction
    why: str
    replica: str = ""
    look_at: float | None = None
    """When time alone may change the decision; None where only events can."""


@dataclass(frozen=True, slots=True)
class _Seen:
    policy: ScalePolicy
    replicas: Sequence[ReplicaState]
    use: PoolUse
    quiet_since: float | None
    now: float

    def those(self, loading: Loading) -> list[ReplicaState]:
        return [each for each in self.replicas if each.loading is loading]

    @property
    def loadable(self) -> list[ReplicaState]:
        return [each for each in self.those(Loading.UNLOADED) if each.failed_until <= self.now]

    @property
    def free(self) -> list[ReplicaState]:
        loaded = self.those(Loading.LOADED)
        is_overdue = self.policy.is_retired and self.policy.is_overdue
        return [each for each in loaded if (each.busy == 0 or is_overdue) and each.failed_until <= self.now]

    @property
    def queue_seconds(self) -> float:
        slots = sum(each.slots for each in self.those(Loading.LOADED))
        each = self.use.task_seconds if self.use.task_seconds is not None else TASK_SECONDS_GUESS
        return self.use.waiting * each / max(slots, 1)

    @property
    def idle_at(self) -> float | None:
        return None if self.quiet_since is None else self.quiet_since + self.policy.idle_seconds


# fmt: off
RULES: Final[Sequence[tuple[ScalingAction, str, Callable[[_Seen], bool]]]] = (
    (ScalingAction.KEEP,   "a replica is being loaded",
     lambda seen: bool(seen.those(Loading.LOADING))),
    (ScalingAction.UNLOAD, "its model is retired, and the deadline of its accepted tasks has passed",
     lambda seen: seen.policy.is_retired and seen.policy.is_overdue and bool(seen.free)),
    (ScalingAction.UNLOAD, "its model is retired",
     lambda seen: seen.policy.is_retired and not seen.use.waiting and bool(seen.free)),
    (ScalingAction.KEEP,   "its model is retired, and its accepted tasks are finished first",
     lambda seen: seen.policy.is_retired and bool(seen.those(Loading.LOADED))),
    (ScalingAction.KEEP,   "none is loaded, its model is retired",
     lambda seen: seen.policy.is_retired),
    (ScalingAction.LOAD,   "fewer replicas are loaded than the minimum",
     lambda seen: len(seen.those(Loading.LOADED)) < seen.policy.loaded_min and bool(seen.loadable)),
    (ScalingAction.LOAD,   "a task waits and no replica is loaded",
     lambda seen: seen.use.waiting > 0 and not seen.those(Loading.LOADED) and bool(seen.loadable)),
    (ScalingAction.LOAD,   "the loaded replicas cannot work off the queue soon",
     lambda seen: seen.queue_seconds > QUEUE_SECONDS and bool(seen.loadable)),
    (ScalingAction.UNLOAD, "it was not needed for the idle time",
     lambda seen: len(seen.those(Loading.LOADED)) > seen.policy.loaded_min
     and seen.idle_at is not None and seen.idle_at <= seen.now
     and bool(seen.free)),
    (ScalingAction.KEEP,   "the loaded replicas are enough, and needed",
     lambda seen: True),
)
# fmt: on


def scale(
    policy: ScalePolicy,
    replicas: Sequence[ReplicaState],
    use: PoolUse,
    *,
    quiet_since: float | None,
    now: float,
) -> Scaling:
    """`quiet_since` is what `quiet` has said until now."""
    seen = _Seen(policy, replicas, use, quiet_since, now)
    action, why = next((action, why) for action, why, applies in RULES if applies(seen))
    if action is ScalingAction.LOAD:
        return Scaling(action, why, min(seen.loadable, key=lambda each: each.id).id)
    if action is ScalingAction.UNLOAD:
        return Scaling(action, why, max(seen.free, key=lambda each: each.id).id)
    return Scaling(action, why, look_at=_next_look(seen))


def quiet(replicas: Sequence[ReplicaState], use: PoolUse, *, since: float | None, now: float) -> float | None:
    """Since when one replica less would have done; None while it would not."""
    loaded = [each for each in replicas if each.loading is Loading.LOADED]
    if not loaded or use.waiting:
        return None
    left = sum(each.slots for each in loaded) - max(each.slots for each in loaded)
    if use.busy > SPARE_SHARE * left:
        return None
    if len(loaded) == 1:
        # To give up the last one, nothing at all may have happened.
        return use.used_at if since is None else max(since, use.used_at)
    return now if since is None else since


def _next_look(seen: _Seen) -> float | None:
    moments = [each.failed_until for each in seen.replicas if each.failed_until > seen.now]
    if seen.idle_at is not None and len(seen.those(Loading.LOADED)) > seen.policy.loaded_min:
        moments.append(max(seen.idle_at, seen.now))
    return min(moments, default=None)
