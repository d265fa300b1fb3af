"""What has to be done before a task of a pool can start, in the contract's words. Numbers that were not measured
are left out.

A pool exists from the moment that its node has an engine and the model's file, so that provisioning the engine and
fetching the model are over by then: what is left is to load the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from homeport.core.inference.engines.handoff import Loading
from homeport.inference.pools.replica import Replica


def preparation(pool_id: str, replicas: Sequence[Replica]) -> tuple[Mapping[str, Any], ...]:
    if any(each.ready for each in replicas):
        return ()
    # Those that are on their way first: they decide when it can start.
    coming = sorted(replicas, key=lambda each: each.handoff.loading is Loading.UNLOADED)
    if not coming:
        return ()
    first = coming[0]
    is_begun = first.handoff.loading is not Loading.UNLOADED
    step: dict[str, Any] = {
        "id": f"pool:{pool_id}",
        "kind": "pool_warmup",
        "group": "pool",
        "description": f"The model of pool {pool_id} is loaded.",
        "status": "running" if is_begun else "pending",
    }
    if first.load_ms is not None:
        step["estimated_ms"] = int(first.load_ms)
    if first.handoff.model.size_bytes:
        step["bytes_total"] = first.handoff.model.size_bytes
    return (step,)


def completed(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same, by step, when the task has begun: everything before it is done."""
    return {step["id"]: _completed(step) for step in steps}


def _completed(step: Mapping[str, Any]) -> dict[str, Any]:
    total = step.get("bytes_total")
    sizes = {} if total is None else {"bytes_total": total, "bytes_done": total}
    return {"status": "completed", **sizes, "pct": 100, "phase": step["group"], "human": step["description"]}
