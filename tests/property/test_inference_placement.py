"""Placement decides the same whether replicas of other models are looked at one by one or only counted."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.inference.placement import ReplicaCandidate, place
from homeport.core.inference.task import PlacementWish, PoolPlacementMode, Priority, Task, WorkloadKind

TASK = Task(
    task_id="t",
    session_id="s",
    workload=WorkloadKind.COMPLETION,
    model_ref="m",
    priority=Priority.INTERACTIVE,
    max_tokens=10,
    deadline_ms=1000,
)
CANDIDATES = st.lists(
    st.builds(
        ReplicaCandidate,
        pool_id=st.sampled_from(["p", "q"]),
        replica_id=st.uuids().map(str),
        engine=st.sampled_from(["vllm", "tgi"]),
        models=st.sampled_from([frozenset({"m"}), frozenset({"n"}), frozenset({"m", "n"}), frozenset()]),
        site=st.sampled_from(["a", "b"]),
        slots_free=st.integers(0, 2),
        ready=st.booleans(),
    ),
    max_size=12,
)
WISHES = st.builds(
    PlacementWish,
    mode=st.sampled_from([PoolPlacementMode.AUTO, PoolPlacementMode.PREFER]),
    prefer_pools=st.sampled_from([(), ("p",)]),
    avoid_pools=st.sampled_from([(), ("q",)]),
    allow_fallback=st.booleans(),
)


@given(
    everything=CANDIDATES,
    wish=WISHES,
    engine=st.sampled_from([None, "vllm"]),
    sites=st.sampled_from([(), ("a",)]),
    needs_slot=st.booleans(),
)
def test_counted_replicas_of_other_models_change_neither_choice_nor_explanation(
    everything: list[ReplicaCandidate],
    wish: PlacementWish,
    engine: str | None,
    sites: tuple[str, ...],
    *,
    needs_slot: bool,
) -> None:
    task = replace(TASK, wish=wish, engine=engine)
    serving = [each for each in everything if not each.models or "m" in each.models]
    others = Counter((each.site, each.engine) for each in everything if each.models and "m" not in each.models)
    whole = place(task, everything, sites=sites, needs_slot=needs_slot)
    assert place(task, serving, sites=sites, needs_slot=needs_slot, others=others) == whole
