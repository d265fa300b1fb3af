"""When replicas are loaded and unloaded: each rule, and a simulated pool under any use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.core.inference.engines.handoff import Loading
from homeport.core.inference.scaling import (
    RULES,
    PoolUse,
    ReplicaState,
    ScalePolicy,
    Scaling,
    ScalingAction,
    quiet,
    scale,
)

NOW, IDLE = 1000.0, 60.0
L, G, U = Loading.LOADED, Loading.LOADING, Loading.UNLOADED
UNUSED_POOL = PoolUse()
WHY = [why for _, why, _ in RULES]
LOADING, OVERDUE, RETIRED, FINISHES, OFF, MINIMUM, FIRST, QUEUE, UNUSED, ENOUGH = WHY


def replicas(*states: Loading, busy: int = 0, slots: int = 1) -> list[ReplicaState]:
    return [ReplicaState(f"r{index}", state, slots, busy if state is L else 0) for index, state in enumerate(states)]


def decided(
    *states: Loading,
    use: PoolUse = UNUSED_POOL,
    minimum: int = 0,
    quiet_since: float | None = None,
    busy: int = 0,
    is_retired: bool = False,
    is_overdue: bool = False,
) -> Scaling:
    policy = ScalePolicy(minimum, IDLE, is_retired=is_retired, is_overdue=is_overdue)
    return scale(policy, replicas(*states, busy=busy), use, quiet_since=quiet_since, now=NOW)


# fmt: off
CASES = [
    (decided(U, U), ScalingAction.KEEP, "", ENOUGH),
    (decided(U, U, minimum=1), ScalingAction.LOAD, "r0", MINIMUM),
    (decided(G, U, minimum=2), ScalingAction.KEEP, "", LOADING),
    (decided(U, U, use=PoolUse(waiting=1)), ScalingAction.LOAD, "r0", FIRST),
    (decided(G, U, use=PoolUse(waiting=100)), ScalingAction.KEEP, "", LOADING),
    (decided(L, U, use=PoolUse(waiting=2, busy=1, task_seconds=2.0)), ScalingAction.KEEP, "", ENOUGH),
    (decided(L, U, use=PoolUse(waiting=3, busy=1, task_seconds=2.0)), ScalingAction.LOAD, "r1", QUEUE),
    (decided(L, L, use=PoolUse(waiting=9, busy=2, task_seconds=2.0)), ScalingAction.KEEP, "", ENOUGH),
    (decided(L, L, quiet_since=NOW - IDLE), ScalingAction.UNLOAD, "r1", UNUSED),
    (decided(L, U, quiet_since=NOW - IDLE), ScalingAction.UNLOAD, "r0", UNUSED),
    (decided(L, U, quiet_since=NOW - IDLE, minimum=1), ScalingAction.KEEP, "", ENOUGH),
    (decided(L, L, quiet_since=NOW - IDLE, busy=1), ScalingAction.KEEP, "", ENOUGH),
    (decided(L, L, is_retired=True, minimum=2), ScalingAction.UNLOAD, "r1", RETIRED),
    (decided(L, G, is_retired=True), ScalingAction.KEEP, "", LOADING),
    (decided(L, U, is_retired=True, busy=1, use=PoolUse(busy=1)), ScalingAction.KEEP, "", FINISHES),
    (decided(L, U, is_retired=True, use=PoolUse(waiting=1)), ScalingAction.KEEP, "", FINISHES),
    (decided(U, U, is_retired=True, minimum=2, use=PoolUse(waiting=9)), ScalingAction.KEEP, "", OFF),
    (decided(L, U, is_retired=True, is_overdue=True, busy=1, use=PoolUse(2, 1)), ScalingAction.UNLOAD, "r0", OVERDUE),
    (decided(L, U, is_overdue=True, busy=1, quiet_since=NOW - IDLE), ScalingAction.KEEP, "", ENOUGH),
]
# fmt: on


@pytest.mark.parametrize(("found", "action", "replica", "why"), CASES)
def test_each_rule(found: Scaling, action: ScalingAction, replica: str, why: str) -> None:
    assert (found.action, found.replica, found.why) == (action, replica, why)


def test_time_is_looked_at_only_where_it_may_decide() -> None:
    assert decided(L, quiet_since=NOW - 10).look_at == NOW + 50
    assert decided(L, quiet_since=NOW - 10, minimum=1).look_at is None
    assert decided(L, use=PoolUse(busy=1)).look_at is None
    assert decided(U).look_at is None


def test_a_replica_that_failed_is_left_alone_for_a_while_and_another_is_taken() -> None:
    failed = [ReplicaState("r0", U, failed_until=NOW + 5), ReplicaState("r1", U)]
    waits = PoolUse(waiting=1)
    policy = ScalePolicy(0, IDLE)
    assert scale(policy, failed, waits, quiet_since=None, now=NOW).replica == "r1"
    alone = scale(policy, failed[:1], waits, quiet_since=None, now=NOW)
    assert (alone.action, alone.look_at) == (ScalingAction.KEEP, NOW + 5)
    assert scale(policy, failed[:1], waits, quiet_since=None, now=NOW + 5).replica == "r0"


def test_the_last_replica_needs_silence_and_others_need_half_of_the_rest_to_be_free() -> None:
    one, three = replicas(L, slots=4), replicas(L, L, L, slots=4)
    assert quiet(one, PoolUse(used_at=NOW - 7), since=None, now=NOW) == NOW - 7
    assert quiet(one, PoolUse(used_at=NOW - 7), since=NOW - 60, now=NOW) == NOW - 7
    assert quiet(one, PoolUse(busy=1), since=NOW - 60, now=NOW) is None
    assert quiet(three, PoolUse(busy=4), since=NOW - 60, now=NOW) == NOW - 60
    assert quiet(three, PoolUse(busy=5), since=NOW - 60, now=NOW) is None
    assert quiet(three, PoolUse(waiting=1), since=NOW - 60, now=NOW) is None


@given(
    count=st.integers(1, 4),
    minimum=st.integers(0, 4),
    steps=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8), st.floats(0.1, 90)), max_size=60),
)
def test_a_pool_stays_between_its_bounds_and_settles(
    count: int, minimum: int, steps: list[tuple[int, int, float]]
) -> None:
    policy, states = ScalePolicy(min(minimum, count), IDLE), {f"r{index}": U for index in range(count)}
    now, since, used_at = 0.0, None, 0.0

    def look(waiting: int, busy: int) -> Scaling:
        nonlocal since
        loaded = sorted(name for name in states if states[name] is L)
        shares = {name: busy // len(loaded) + (index < busy % len(loaded)) for index, name in enumerate(loaded)}
        seen = [ReplicaState(name, state, 2, shares.get(name, 0)) for name, state in states.items()]
        use = PoolUse(waiting, busy if loaded else 0, used_at, 2.0)
        since = quiet(seen, use, since=since, now=now)
        found = scale(policy, seen, use, quiet_since=since, now=now)
        if found.action is ScalingAction.LOAD:
            assert states[found.replica] is U
            states[found.replica] = L
        elif found.action is ScalingAction.UNLOAD:
            assert states[found.replica] is L
            assert not waiting and not shares[found.replica], "nothing that works or is waited for is unloaded"
            states[found.replica] = U
        if found.action is not ScalingAction.KEEP:
            since = None
        return found

    for waiting, busy, seconds in steps:
        now += seconds
        used_at = now if waiting or busy else used_at
        changes = [look(waiting, busy).action for _ in range(count + 2)]
        assert changes[-1] is ScalingAction.KEEP, "the same situation settles"
        assert not {ScalingAction.LOAD, ScalingAction.UNLOAD} <= set(changes), "and never goes back and forth"
        if waiting:
            assert L in states.values(), "who waits is served"
    for _ in range(count + 2):
        look(0, 0)
        now += IDLE + 1
    assert sum(state is L for state in states.values()) == policy.loaded_min, "without use, the minimum remains"
