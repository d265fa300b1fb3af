"""How likely a task ends before its deadline, from what was measured so far. Pure."""

import math
from typing import Final

from homeport.core.inference.task import Task

SPREAD: Final = 0.25
"""How far the time that a task takes lies from its forecast: one standard deviation, as a share of the forecast."""
EXPECTED_TOKENS: Final = 256
"""Of a task that does not say how many it expects. Most answers are far shorter than `max_tokens`."""


def expected_tokens(task: Task) -> int:
    return task.expected_tokens or min(task.max_tokens, EXPECTED_TOKENS)


def decode_ms_left(task: Task, tokens: int, *, decoded_ms: float, first_token_ms: float, rate: float | None) -> float:
    """How long the tokens take that are still expected: at the speed of this task itself once it has one, else of its
    replica (`rate`, tokens a second), else as if each took as long as the first, which no engine exceeds."""
    left = max(expected_tokens(task) - tokens, 0)
    if tokens > 1:
        return left * decoded_ms / (tokens - 1)
    return left * (1000.0 / rate if rate else first_token_ms)


def on_time_probability(*, left_ms: float, needed_ms: float) -> float:
    """From 0 to 1, with two decimals. `left_ms` until the deadline; what is needed is a forecast."""
    if left_ms <= 0 or needed_ms <= 0:
        return 1.0 if left_ms > 0 else 0.0
    deviations = (left_ms - needed_ms) / (SPREAD * needed_ms)
    return round(0.5 * (1.0 + math.erf(deviations / math.sqrt(2.0))), 2)
