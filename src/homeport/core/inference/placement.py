"""Which pool queues a task, and which replica runs it: feasibility, wishes, score, ties. Pure and explained.

The same function is asked twice: at admission without regard to free slots (which pool's queue?), and at dispatch
with it (which replica of that pool?). Identical inputs give identical decisions, across restarts too.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

from homeport.core.inference.deadlines import expected_tokens
from homeport.core.inference.task import PoolPlacementMode, Task, TaskCode
from homeport.lazy_dataclass import dataclass

CACHED_PREFIX_BONUS_MS: Final = 250.0
"""How much longer a task may wait for the replica that has its prefix cached. More would starve the others."""
AFFINITY_BONUS_MS: Final = 100.0
NOT_PREFERRED: Final = "no_preferred_feasible"


class Misfit(StrEnum):
    """Why a replica cannot take a task. The order is that of the checks."""

    OTHER_SITE = "OTHER_SITE"
    ENGINE = "ENGINE_MISMATCH"
    MODEL = "MODEL_NOT_SERVED"
    AVOIDED = "AVOIDED"
    DEVICE_MASK = "DEVICE_MASK_MISMATCH"
    WORKLOAD = "EXTENSIONS_UNSATISFIED"
    CTX = "INSUFFICIENT_CTX"
    VRAM = "INSUFFICIENT_VRAM"
    UNREADY = "POOL_UNREADY"
    SLOTS = "NO_CAPACITY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCandidate:
    """A replica as placement sees it."""

    pool_id: str
    replica_id: str
    engine: str
    models: frozenset[str]
    site: str = ""
    engine_version: str = ""
    slots_total: int = 1
    slots_free: int = 1
    ready: bool = True
    """Live, ready, not draining, and its breaker lets tasks through."""
    ctx_max: int | None = None
    vram_free_bytes: int | None = None
    vram_needed_bytes: int | None = None
    device_mask: str | None = None
    workloads: frozenset[str] = frozenset({"completion"})
    tokens_per_second: float | None = None
    first_token_ms: float | None = None
    load_ms: float = 0.0
    """Until its model is loaded."""
    queued: int = 0
    """How many tasks wait in its pool."""
    has_prefix: bool = False
    is_affine: bool = False
    """It served the session's last turn."""


@dataclass(frozen=True, slots=True)
class PoolDecision:
    chosen: ReplicaCandidate | None
    considered: int
    misfits: tuple[tuple[Misfit, int], ...] = ()
    """How many replicas were left out for each reason."""
    reason: str = ""
    """Empty when one was chosen; else `pinned_pool_infeasible`, `no_preferred_feasible` or the commonest misfit."""
    pinned: bool = False
    fallback: bool = False
    tie_breakers: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """For people: `homeport why TASK`."""
        left_out = ", ".join(f"{count} {misfit.value}" for misfit, count in self.misfits)
        if self.chosen is None and self.reason == NOT_PREFERRED:
            return f"none of the preferred pools can, and allow_fallback is off{f': {left_out}' if left_out else ''}"
        if self.chosen is None:
            return f"no replica of {self.considered} fits: {left_out or 'none is known'}"
        where = f"{self.chosen.pool_id}/{self.chosen.replica_id} of {self.considered} considered"
        ties = f"; by {', '.join(self.tie_breakers)}" if self.tie_breakers else ""
        return f"placed on {where}{ties}{f'; left out: {left_out}' if left_out else ''}"


def misfit(
    task: Task, candidate: ReplicaCandidate, *, sites: Sequence[str] = (), needs_slot: bool = True
) -> Misfit | None:
    """The first rule that the replica breaks."""
    wish = task.wish
    needed = max(task.ctx, task.context_tokens)
    rules = (
        (Misfit.OTHER_SITE, bool(sites) and candidate.site not in sites),
        (Misfit.ENGINE, task.engine is not None and task.engine != candidate.engine),
        (Misfit.MODEL, bool(candidate.models) and task.model_ref not in candidate.models),
        (Misfit.AVOIDED, candidate.pool_id in wish.avoid_pools),
        (Misfit.DEVICE_MASK, wish.require_device_mask not in (None, candidate.device_mask)),
        (Misfit.WORKLOAD, task.workload.value not in candidate.workloads),
        (Misfit.CTX, candidate.ctx_max is not None and needed > candidate.ctx_max),
        (Misfit.VRAM, _is_too_large(candidate.vram_needed_bytes, candidate.vram_free_bytes)),
        (Misfit.UNREADY, not candidate.ready),
        (Misfit.SLOTS, needs_slot and candidate.slots_free <= 0),
    )
    return next((kind for kind, is_broken in rules if is_broken), None)


def _is_too_large(needed: int | None, free: int | None) -> bool:
    return needed is not None and free is not None and needed > free


Others = Mapping[tuple[str, str], int]
"""Replicas that are known not to serve the task's model, counted by site and engine."""


def place(
    task: Task,
    candidates: Iterable[ReplicaCandidate],
    *,
    sites: Sequence[str] = (),
    needs_slot: bool = True,
    others: Others | None = None,
) -> PoolDecision:
    """`others` are considered like the candidates, without having to be looked at one by one."""
    everything = list(candidates)
    considered = len(everything) + (sum(others.values()) if others else 0)
    wish, pinned = task.wish, task.wish.mode is PoolPlacementMode.PIN
    pool = [each for each in everything if each.pool_id == wish.pin_pool_id] if pinned else everything
    misfits: dict[Misfit, int] = {}
    feasible = []
    for each in pool:
        why = misfit(task, each, sites=sites, needs_slot=needs_slot)
        if why is None:
            feasible.append(each)
        else:
            misfits[why] = misfits.get(why, 0) + 1
    if others:
        for (site, engine), count in others.items():
            why = _of_another_model(task, site, engine, sites)
            misfits[why] = misfits.get(why, 0) + count
    found = _in_order(tuple(misfits.items())) if misfits else ()
    if pinned and not feasible:
        return PoolDecision(None, considered, found, "pinned_pool_infeasible", pinned=True)
    fallback = False
    if wish.mode is PoolPlacementMode.PREFER and wish.prefer_pools:
        preferred = [each for each in feasible if each.pool_id in wish.prefer_pools]
        if not preferred and not wish.allow_fallback:
            return PoolDecision(None, considered, found, NOT_PREFERRED)
        fallback = not preferred and bool(feasible)
        feasible = preferred or feasible
    if not feasible:
        return PoolDecision(None, considered, found, _commonest(misfits))
    if len(feasible) == 1:
        return PoolDecision(feasible[0], considered, found, pinned=pinned, fallback=fallback)
    best = min(feasible, key=lambda each: _rank(task, each))
    return PoolDecision(
        best, considered, found, pinned=pinned, fallback=fallback, tie_breakers=_ties(task, best, feasible)
    )


@lru_cache(maxsize=256)
def _in_order(misfits: tuple[tuple[Misfit, int], ...]) -> tuple[tuple[Misfit, int], ...]:
    """The same object for the thousands of tasks that wait for the same reasons."""
    return tuple(sorted(misfits))


def _of_another_model(task: Task, site: str, engine: str, sites: Sequence[str]) -> Misfit:
    """The first rule that a replica breaks which does not serve the model: as `misfit` has them."""
    if sites and site not in sites:
        return Misfit.OTHER_SITE
    return Misfit.ENGINE if task.engine not in (None, engine) else Misfit.MODEL


def code_of(decision: PoolDecision) -> TaskCode:
    """The refusal of a task that fits nowhere."""
    kinds = {kind for kind, _ in decision.misfits}
    if Misfit.SLOTS in kinds:
        return TaskCode.REPLICA_EXHAUSTED
    if Misfit.UNREADY in kinds:
        return TaskCode.POOL_UNREADY
    if Misfit.CTX in kinds or Misfit.WORKLOAD in kinds:
        return TaskCode.INVALID_PARAMS
    if decision.pinned:
        return TaskCode.INVALID_PARAMS
    return TaskCode.POOL_UNAVAILABLE


def predicted_ms(task: Task, candidate: ReplicaCandidate) -> float:
    """How long until the last token, as far as it is known: waiting, first token, decoding."""
    rate = candidate.tokens_per_second
    decode = 0.0 if not rate else 1000.0 * expected_tokens(task) / rate
    ahead = max(candidate.queued - max(candidate.slots_free, 0) + 1, 0)
    wait = ahead * (decode or 100.0) / max(candidate.slots_total, 1)
    bonus = CACHED_PREFIX_BONUS_MS * candidate.has_prefix + AFFINITY_BONUS_MS * candidate.is_affine
    return candidate.load_ms + wait + (candidate.first_token_ms or 0.0) + decode - bonus


def _rank(task: Task, each: ReplicaCandidate) -> tuple[float, bool, float, int, float, str, str]:
    busy = 1.0 - each.slots_free / max(each.slots_total, 1)
    # Rounded, so that noise in the measured hints does not override what is really different.
    return (
        round(predicted_ms(task, each) / 50.0),
        not each.is_affine,
        round(busy, 3),
        -(each.vram_free_bytes or 0),
        -(each.tokens_per_second or 0.0),
        each.pool_id,
        each.replica_id,
    )


_TIES: Final = ("predicted time", "affinity", "load", "free VRAM", "tokens per second", "pool id", "replica id")


def _ties(task: Task, best: ReplicaCandidate, feasible: Sequence[ReplicaCandidate]) -> tuple[str, ...]:
    """Which criterion decided against the runner-up."""
    others = [each for each in feasible if each is not best]
    if not others:
        return ()
    first, second = _rank(task, best), min(_rank(task, each) for each in others)
    return next(((name,) for name, mine, theirs in zip(_TIES, first, second, strict=True) if mine != theirs), ())


def _commonest(misfits: Mapping[Misfit, int]) -> str:
    """Of several that are equally common, always the same, in whatever order the replicas were looked at."""
    return min(misfits, key=lambda kind: (-misfits[kind], kind)).value if misfits else "no_pool"
