"""The queue of a pool, under any sequence of calls: bounds hold, nobody is lost, nobody is served twice."""

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.inference.queue import LOOK_AHEAD_MAX, FullPolicy, PoolQueue, QueueEntry
from homeport.core.inference.task import Priority

STEPS = st.lists(
    st.tuples(st.sampled_from(["offer", "take", "cancel"]), st.integers(0, 30), st.sampled_from(Priority)),
    max_size=120,
)


@given(
    steps=STEPS,
    capacity=st.integers(1, 8),
    policy=st.sampled_from(FullPolicy),
    preferred=st.sets(st.integers(0, 120)),
)
def test_everything_offered_is_waiting_taken_cancelled_or_dropped_once(
    steps: list[tuple[str, int, Priority]], capacity: int, policy: FullPolicy, preferred: set[int]
) -> None:
    queue: PoolQueue[str] = PoolQueue(capacity, policy)
    waiting: list[str] = []
    for now, (what, number, priority) in enumerate(steps):
        if what == "offer":
            name = f"t{now}"
            offered = queue.offer(QueueEntry(name, f"k{number % 3}", priority, float(now), name))
            if offered.evicted is not None:
                waiting.remove(offered.evicted.id)
            if offered.accepted:
                waiting.append(name)
        elif what == "cancel" and waiting:
            victim = waiting[number % len(waiting)]
            assert queue.cancel(victim)
            assert not queue.cancel(victim)
            waiting.remove(victim)
        elif what == "take":
            taken = queue.take(lambda _: True, float(now), lambda name: int(name[1:]) in preferred)
            assert (taken is None) == (not waiting)
            if taken is not None:
                waiting.remove(taken.id)
        assert sorted(entry.id for entry in queue) == sorted(waiting)
        assert len(queue) <= capacity
        assert sum(queue.depth(each) for each in Priority) == len(waiting)


@given(counts=st.lists(st.integers(1, 20), min_size=2, max_size=5))
def test_no_key_waits_for_more_than_one_task_of_each_other_key(counts: list[int]) -> None:
    queue: PoolQueue[str] = PoolQueue(1000)
    for key, count in enumerate(counts):
        for index in range(count):
            queue.offer(QueueEntry(f"{key}-{index}", str(key), Priority.BATCH, 0.0, ""))
    first = [queue.take(lambda _: True, 0.0) for _ in counts]
    assert sorted(entry.key for entry in first if entry is not None) == sorted(map(str, range(len(counts))))


@given(
    offers=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(Priority), st.booleans()), max_size=60),
    moments=st.lists(st.floats(0, 20), min_size=60, max_size=60),
)
def test_preferred_tasks_pass_others_of_their_priority_only_and_nobody_beyond_the_limit(
    offers: list[tuple[int, Priority, bool]], moments: list[float]
) -> None:
    queue: PoolQueue[bool] = PoolQueue(1000, wait_seconds_max=10.0)
    for index, (key, priority, is_preferred) in enumerate(offers):
        queue.offer(QueueEntry(f"t{index}", str(key), priority, 0.0, is_preferred))
    for now in sorted(moments)[: len(offers)]:
        waiting = list(queue)
        taken = queue.take(lambda _: True, now, lambda is_preferred: is_preferred)
        assert taken is not None
        if now > 10.0:
            assert taken is waiting[0]
            continue
        first = min(waiting, key=lambda each: each.priority is Priority.BATCH).priority
        assert taken.priority is first
        heads = [each for each in waiting if each.priority is first][:LOOK_AHEAD_MAX]
        assert taken.content or not any(each.content for each in heads)


@given(offers=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(Priority)), max_size=60))
def test_each_key_is_served_in_the_order_in_which_it_came_and_interactive_before_batch(
    offers: list[tuple[int, Priority]],
) -> None:
    queue: PoolQueue[str] = PoolQueue(1000)
    for index, (key, priority) in enumerate(offers):
        queue.offer(QueueEntry(f"t{index}", str(key), priority, 0.0, str(index)))
    taken: list[QueueEntry[str]] = []
    while (entry := queue.take(lambda _: True, 0.0)) is not None:
        taken.append(entry)
    assert len(taken) == len(offers)
    assert [each.priority for each in taken] == sorted((each.priority for each in taken), key=list(Priority).index)
    for lane in {(each.key, each.priority) for each in taken}:
        order = [int(each.content) for each in taken if (each.key, each.priority) == lane]
        assert order == sorted(order)
