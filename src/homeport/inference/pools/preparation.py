"""What has to be done before a task of a pool can start, in the contract's words. Numbers that were not measured
are left out.

While an engine is brought to its node for the first time, its node says what is left. From then on its program and
the model's file are there, and what is left is to load the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from homeport.core.inference.engines.handoff import Loading
from homeport.core.inference.engines.preparing import left, warmup_of
from homeport.inference.pools.replica import Replica


def preparation(pool_id: str, replicas: Sequence[Replica]) -> tuple[Mapping[str, Any], ...]:
    if not replicas or any(each.ready for each in replicas):
        return ()
    # The one that is nearest to its end: it decides when the task can start.
    first = min(replicas, key=_order)
    if first.handoff.preparation:
        return tuple(step.to_data() for step in left(first.handoff.preparation))
    step = warmup_of(
        pool_id,
        model_bytes=first.handoff.model.size_bytes,
        estimated_ms=int(first.load_ms or 0),
        is_begun=first.handoff.loading is not Loading.UNLOADED,
    )
    return (step.to_data(),)


def _order(replica: Replica) -> int:
    if replica.handoff.preparation:
        return 2
    return 1 if replica.handoff.loading is Loading.UNLOADED else 0


def completed(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same, by step, when the task has begun: everything before it is done."""
    return {step["id"]: _completed(step) for step in steps}


def _completed(step: Mapping[str, Any]) -> dict[str, Any]:
    total = step.get("bytes_total")
    sizes = {} if total is None else {"bytes_total": total, "bytes_done": total}
    return {"status": "completed", **sizes, "pct": 100, "phase": step["group"], "human": step["description"]}
