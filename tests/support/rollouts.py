"""Makes rollouts for tests, with plain defaults for all that a test does not care about."""

from typing import Any

from homeport.core.model.rollout import Intent, Rollout, Size, Wave
from homeport.vocabulary import Commit, RolloutId, RolloutState, SiteName
from tests.support.builders import NOW

ONE, QUARTER, HALF, ALL = Size(1), Size(25, True), Size(50, True), Size(100, True)


def a_rollout(*waves: tuple[Size, str | None], watched: float | None = None, **changes: Any) -> Rollout:
    """Each wave with the sites that are in it, one letter each; None for one that has not begun."""
    intent = Intent(
        id=RolloutId("r"),
        name="hello",
        category="demo",
        app_name="hello",
        version="1.0.0",
        profile="compose",
        created_at=NOW,
        author="ann",
        waves=tuple(Wave(size, None if sites is None else tuple(map(SiteName, sites))) for size, sites in waves),
        **changes,
    )
    return Rollout(intent, RolloutState.RUNNING, Commit("c" * 40), 1, NOW, watched_seconds=watched)
