"""The bake time of a wave. It is counted in steps of the monotonic clock, from one round to the next, and stored:
neither a clock change nor a restart of central shortens or resets it.
"""

from typing import Final

STEP_ROUNDS_MAX: Final = 3
STEP_SECONDS_MIN: Final = 10.0
"""A step up to this long is counted in full, however short the rounds are."""


def watched_after(watched: float, since_last_look: float | None, *, round_seconds: float) -> float:
    """`since_last_look` is None for the first round after a start: nothing was watched before it.

    A delayed round has not seen what happened in between, so it counts as one round.
    """
    if since_last_look is None or since_last_look < 0:
        return watched
    longest = max(STEP_SECONDS_MIN, STEP_ROUNDS_MAX * round_seconds)
    return watched + (since_last_look if since_last_look <= longest else round_seconds)
