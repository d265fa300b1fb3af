"""How likely a task ends in time."""

from dataclasses import replace

import pytest

from homeport.core.inference.deadlines import decode_ms_left, expected_tokens, on_time_probability
from homeport.core.inference.task import Priority, Task, WorkloadKind

TASK = Task(
    task_id="t",
    session_id="s",
    workload=WorkloadKind.COMPLETION,
    model_ref="m",
    priority=Priority.INTERACTIVE,
    max_tokens=101,
    deadline_ms=10_000,
)


def left(tokens: int, *, rate: float | None = None, task: Task = TASK) -> float:
    return decode_ms_left(task, tokens, decoded_ms=1000.0, first_token_ms=50.0, rate=rate)


def test_a_task_is_forecast_by_its_own_speed_then_its_replicas_then_its_first_token() -> None:
    assert left(51, rate=1.0) == 50 * 1000 / 50, "its own"
    assert left(1, rate=100.0) == 100 * 10.0, "the replica's"
    assert left(1) == 100 * 50.0, "as slow as the first token at most"
    assert left(200) == 0.0


def test_what_a_task_expects_counts_more_than_its_limit() -> None:
    assert expected_tokens(replace(TASK, expected_tokens=7)) == 7
    assert expected_tokens(TASK) == 101
    assert expected_tokens(replace(TASK, max_tokens=4_000)) == 256, "most answers are far shorter"


@pytest.mark.parametrize(
    ("left_ms", "needed_ms", "probability"),
    [(1000, 1000, 0.5), (1250, 1000, 0.84), (750, 1000, 0.16), (9000, 1000, 1.0), (0, 1000, 0.0), (1, 0, 1.0)],
)
def test_much_room_is_safe_and_none_is_hopeless(left_ms: float, needed_ms: float, probability: float) -> None:
    assert on_time_probability(left_ms=left_ms, needed_ms=needed_ms) == probability


def test_it_never_leaves_zero_to_one_and_grows_with_the_room() -> None:
    found = [on_time_probability(left_ms=float(room), needed_ms=500.0) for room in range(-100, 5_000, 50)]
    assert found == sorted(found)
    assert 0.0 == found[0] <= found[-1] == 1.0
