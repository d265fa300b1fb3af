"""Admission, queue, placement, breaker and sessions: each rule."""

from dataclasses import replace
from typing import Any

import pytest

from homeport.core.inference import admission
from homeport.core.inference.admission import Situation
from homeport.core.inference.breaker import CLOSED, FAILURES_MAX, OPEN, Circuit
from homeport.core.inference.models.lifecycle import CatalogModel, ModelLifecycle
from homeport.core.inference.placement import Misfit, ReplicaCandidate, code_of, place
from homeport.core.inference.queue import LOOK_AHEAD_MAX, FullPolicy, PoolQueue, QueueEntry, predicted_start_ms
from homeport.core.inference.sessions import Budgets, Session
from homeport.core.inference.task import (
    STATUS,
    PlacementWish,
    PoolPlacementMode,
    Priority,
    Task,
    TaskCode,
    WorkloadKind,
)

TASK = Task(
    task_id="t",
    session_id="s",
    workload=WorkloadKind.COMPLETION,
    model_ref="m",
    priority=Priority.INTERACTIVE,
    max_tokens=10,
    deadline_ms=1000,
)


BUSY = Session("s", 0.0, budgets=Budgets(tokens=25)).admitted(0, 8).admitted(0, 8)
"""Two tasks under way may use sixteen of its tokens."""


def candidate(pool_id: str = "p", replica_id: str = "r0", **changes: Any) -> ReplicaCandidate:
    return ReplicaCandidate(
        **{"pool_id": pool_id, "replica_id": replica_id, "engine": "llamacpp", "models": frozenset({"m"}), **changes}
    )


def wish(**changes: Any) -> Task:
    return replace(TASK, wish=PlacementWish(**changes))


# --- placement ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "where", "why"),
    [
        (replace(TASK, engine="vllm"), candidate(), Misfit.ENGINE),
        (replace(TASK, model_ref="other"), candidate(), Misfit.MODEL),
        (wish(avoid_pools=("p",)), candidate(), Misfit.AVOIDED),
        (wish(require_device_mask="0"), candidate(device_mask="1"), Misfit.DEVICE_MASK),
        (replace(TASK, workload=WorkloadKind.RERANK), candidate(), Misfit.WORKLOAD),
        (replace(TASK, ctx=4096), candidate(ctx_max=2048), Misfit.CTX),
        (TASK, candidate(vram_needed_bytes=10, vram_free_bytes=5), Misfit.VRAM),
        (TASK, candidate(ready=False), Misfit.UNREADY),
        (TASK, candidate(slots_free=0), Misfit.SLOTS),
    ],
)
def test_each_reason_not_to_fit(task: Task, where: ReplicaCandidate, why: Misfit) -> None:
    decision = place(task, [where])
    assert decision.chosen is None
    assert decision.misfits == ((why, 1),)
    assert why.value in decision.sentence


def test_what_can_never_be_is_the_callers_mistake_and_what_may_come_is_not() -> None:
    never = place(replace(TASK, workload=WorkloadKind.RERANK), [candidate()])
    assert code_of(never) is TaskCode.INVALID_PARAMS
    other = place(replace(TASK, model_ref="other"), [candidate()])
    assert code_of(other) is TaskCode.POOL_UNAVAILABLE


def test_a_limited_caller_gets_replicas_of_its_sites_only() -> None:
    decision = place(TASK, [candidate(site="a"), candidate("q", site="b")], sites=("b",))
    assert decision.chosen is not None
    assert decision.chosen.site == "b"
    assert dict(decision.misfits) == {Misfit.OTHER_SITE: 1}


def test_a_pin_never_falls_back() -> None:
    pinned = wish(mode=PoolPlacementMode.PIN, pin_pool_id="p")
    decision = place(pinned, [candidate(ready=False), candidate("q")])
    assert (decision.chosen, decision.reason) == (None, "pinned_pool_infeasible")
    assert code_of(decision) is TaskCode.POOL_UNREADY


def test_replicas_without_a_free_slot_are_exhausted() -> None:
    code = code_of(place(TASK, [candidate(slots_free=0)]))
    assert (code, STATUS[code]) == (TaskCode.REPLICA_EXHAUSTED, 503)


def test_a_preference_falls_back_only_where_it_may() -> None:
    preferring = wish(mode=PoolPlacementMode.PREFER, prefer_pools=("q",))
    decision = place(preferring, [candidate()])
    assert decision.chosen is not None
    assert decision.fallback
    strict = wish(mode=PoolPlacementMode.PREFER, prefer_pools=("q",), allow_fallback=False)
    assert place(strict, [candidate()]).reason == "no_preferred_feasible"


def test_ties_are_broken_in_their_order() -> None:
    free = candidate("b", slots_total=4, slots_free=4)
    busy = candidate("a", slots_total=4, slots_free=1)
    assert place(TASK, [busy, free]).chosen == free
    affine = replace(busy, is_affine=True)
    assert place(TASK, [affine, free]).chosen == affine
    roomy = replace(free, pool_id="c", vram_free_bytes=10)
    assert place(TASK, [free, roomy]).chosen == roomy
    same = place(TASK, [candidate("b"), candidate("a")])
    assert same.chosen is not None
    assert (same.chosen.pool_id, same.tie_breakers) == ("a", ("pool id",))


def test_a_cached_prefix_is_preferred_until_its_queue_is_long() -> None:
    cached = candidate("a", has_prefix=True, tokens_per_second=100.0, slots_free=1)
    other = candidate("b", tokens_per_second=100.0, slots_free=1)
    assert place(TASK, [cached, other]).chosen == cached
    crowded = replace(cached, queued=50, slots_free=0)
    assert place(TASK, [crowded, other], needs_slot=False).chosen == other


# --- queue --------------------------------------------------------------------------------------------------------


def entry(
    name: str, key: str = "k", priority: Priority = Priority.INTERACTIVE, since: float = 0.0
) -> QueueEntry[str]:
    return QueueEntry(name, key, priority, since, name)


def drained(queue: PoolQueue[str], now: float = 0.0) -> list[str]:
    found = []
    while (taken := queue.take(lambda _: True, now)) is not None:
        found.append(taken.id)
    return found


def test_interactive_comes_first_and_each_key_in_its_order() -> None:
    queue: PoolQueue[str] = PoolQueue(10)
    queue.offer(entry("b1", priority=Priority.BATCH))
    queue.offer(entry("i1"))
    queue.offer(entry("i2"))
    assert drained(queue) == ["i1", "i2", "b1"]


def test_keys_take_turns() -> None:
    queue: PoolQueue[str] = PoolQueue(10)
    for name in ("a1", "a2", "a3", "b1"):
        queue.offer(entry(name, key=name[0]))
    assert drained(queue) == ["a1", "b1", "a2", "a3"]


def test_a_batch_task_that_waited_too_long_comes_first() -> None:
    queue: PoolQueue[str] = PoolQueue(10, wait_seconds_max=5)
    queue.offer(entry("old", priority=Priority.BATCH, since=0))
    queue.offer(entry("new", since=9))
    assert drained(queue, now=10) == ["old", "new"]


def test_a_task_that_cannot_run_is_passed_over() -> None:
    queue: PoolQueue[str] = PoolQueue(10)
    queue.offer(entry("unloaded"))
    queue.offer(entry("loaded"))
    taken = queue.take(lambda content: content == "loaded", 0)
    assert taken is not None
    assert taken.id == "loaded"
    assert queue.position("unloaded") == 0


def test_a_full_queue_rejects_or_drops_the_oldest_batch_task() -> None:
    rejecting: PoolQueue[str] = PoolQueue(1)
    rejecting.offer(entry("a"))
    assert not rejecting.offer(entry("b")).accepted
    dropping: PoolQueue[str] = PoolQueue(2, FullPolicy.DROP_LRU)
    dropping.offer(entry("i"))
    dropping.offer(entry("b", priority=Priority.BATCH))
    offered = dropping.offer(entry("new"))
    assert offered.evicted is not None
    assert offered.evicted.id == "b"
    assert not dropping.offer(entry("late", priority=Priority.BATCH)).accepted


def test_the_start_is_predicted_from_measured_rates() -> None:
    assert predicted_start_ms(0, slots_total=2, slots_free=1, seconds_per_task=None) == 0
    assert predicted_start_ms(4, slots_total=1, slots_free=0, seconds_per_task=None) == 500
    assert predicted_start_ms(3, slots_total=2, slots_free=0, seconds_per_task=2.0) == 4000


def test_what_is_preferred_comes_first_within_its_priority_until_another_has_waited_too_long() -> None:
    queue: PoolQueue[str] = PoolQueue(10, wait_seconds_max=5.0)
    for name, priority in (("b1", "interactive"), ("a1", "interactive"), ("a2", "batch"), ("b2", "batch")):
        queue.offer(entry(name, priority=Priority(priority)))
    queue.offer(entry("a3", since=9.0))

    def take(now: float) -> str:
        taken = queue.take(lambda _: True, now, lambda name: name.startswith("a"))
        assert taken is not None
        return taken.id

    assert [take(1.0), take(6.0)] == ["a1", "b1"], "b1 has waited for more than five seconds"
    queue.cancel("a2")
    assert [take(1.0), take(1.0)] == ["a3", "b2"]


def test_one_overdue_task_that_cannot_run_takes_the_limit_from_no_other() -> None:
    queue: PoolQueue[str] = PoolQueue(100, wait_seconds_max=5.0)
    for number in range(2 * LOOK_AHEAD_MAX):
        queue.offer(entry(f"blocked{number}", key="a"))
    queue.offer(entry("unloaded", key="b", priority=Priority.BATCH, since=1.0))
    queue.offer(entry("later", key="b", since=2.0))
    queue.offer(entry("loaded", key="c", since=9.0))
    asked: list[str] = []

    def can_run(name: str) -> bool:
        asked.append(name)
        return not name.startswith("blocked")

    def take(now: float) -> str:
        taken = queue.take(can_run, now, lambda name: name == "loaded")
        assert taken is not None
        return taken.id

    assert [take(10.0), take(10.0), take(10.0)] == ["unloaded", "later", "loaded"]
    most = 2 * LOOK_AHEAD_MAX + 2
    assert len(asked) <= 3 * most, "however many tasks of a key wait, so many of it are asked"


# --- admission ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "situation", "code"),
    [
        (replace(TASK, ctx=-1), Situation(), TaskCode.INVALID_PARAMS),
        (replace(TASK, ctx=4096), Situation(ctx_limit=2048), TaskCode.INVALID_PARAMS),
        (replace(TASK, max_tokens=60_000), Situation(), TaskCode.INVALID_PARAMS),
        (replace(TASK, prompt_tokens_estimate=2000), Situation(ctx_limit=2005), TaskCode.INVALID_PARAMS),
        (replace(TASK, text_tokens_max=2006), Situation(ctx_limit=2005), TaskCode.INVALID_PARAMS),
        (replace(TASK, deadline_ms=0), Situation(), TaskCode.DEADLINE_UNMET),
        (TASK, Situation(predicted_start_ms=2000), TaskCode.DEADLINE_UNMET),
        (TASK, Situation(session=Session("s", 0.0, turns=8)), TaskCode.INVALID_PARAMS),
        (TASK, Situation(session=Session("s", 0.0, budgets=Budgets(tokens=5))), TaskCode.INVALID_PARAMS),
        (TASK, Situation(session=Session("s", 0.0, budgets=Budgets(cost=0.0))), TaskCode.INVALID_PARAMS),
        (TASK, Situation(session=BUSY), TaskCode.INVALID_PARAMS),
        (TASK, Situation(waiting_of_key=9, key_waiting_max=9), TaskCode.ADMISSION_REJECT),
        (TASK, Situation(model=CatalogModel("m", ModelLifecycle.RETIRED)), TaskCode.MODEL_DEPRECATED),
        (TASK, Situation(model=CatalogModel("m", is_verified=False)), TaskCode.UNTRUSTED_ARTIFACT),
        (wish(mode=PoolPlacementMode.PIN, pin_pool_id="x"), Situation(pool_ids=("p",)), TaskCode.INVALID_PARAMS),
    ],
)
def test_each_rule_of_admission(task: Task, situation: Situation, code: TaskCode) -> None:
    refusal = admission.refusal(task, situation)
    assert refusal is not None
    assert refusal.code is code
    assert refusal.message.endswith(".")


def test_the_first_broken_rule_is_the_answer() -> None:
    wrong = replace(TASK, ctx=-1, deadline_ms=0)
    refusal = admission.refusal(wrong, Situation(waiting_of_key=9, key_waiting_max=9))
    assert refusal is not None
    assert refusal.field == "ctx"


def test_a_good_task_is_accepted() -> None:
    assert admission.refusal(TASK, Situation(model=CatalogModel("m"), session=Session("s", 0.0))) is None


def test_texts_that_are_computed_one_by_one_need_the_context_of_the_longest() -> None:
    task = replace(TASK, prompt_tokens_estimate=9_000, text_tokens_max=500, workload=WorkloadKind.EMBEDDING)
    assert admission.refusal(task, Situation(ctx_limit=512)) is None
    where = candidate(ctx_max=512, workloads=frozenset({"embedding"}))
    assert place(task, [where]).chosen == where


# --- breaker and sessions -------------------------------------------------------------------------------------------


def test_the_breaker_opens_tries_one_and_closes_again() -> None:
    breaker = CLOSED
    for _ in range(FAILURES_MAX):
        assert breaker.lets_through(0)
        breaker = breaker.failed(0)
    assert not breaker.lets_through(1)
    later = OPEN.first_seconds + 1
    assert breaker.circuit(later) is Circuit.HALF_OPEN
    trial = breaker.started(later)
    assert not trial.lets_through(later)
    assert trial.abandoned().lets_through(later)
    assert trial.failed(later).seconds == 2 * OPEN.first_seconds
    assert trial.succeeded() == CLOSED


def test_a_session_spends_its_budget_and_expires() -> None:
    session = Session("s", 0.0, budgets=Budgets(tokens=100, time_ms=50, cost=0.001))
    spent = session.spent(30, 100)
    assert (spent.budgets.tokens, spent.budgets.time_ms) == (70, 0)
    shown = [session.to_data(now, kv_bytes=7) for now in (0, 60, 600)]
    assert [each["ttl_ms_remaining"] for each in shown] == [600_000, 540_000, 0]
    assert (shown[0]["turns"], shown[0]["kv_bytes"], shown[0]["tokens_budget_remaining"]) == (0, 7, 100)
    assert session.is_expired(601)
    assert not session.is_expired(599)
    assert session.admitted(5).turns == 1
    assert not session.first_token(("p", "r")).failed_over().kv_warmth
