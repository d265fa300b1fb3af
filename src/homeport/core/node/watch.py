"""Which health changes of installed releases a node reports to its site. Pure: time arrives as `now`.

Unhealthy is reported at once. Healthy is reported when it has lasted, for longer each time it did not: a flapping
release stays unhealthy and causes a bounded number of messages, however often it changes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from homeport.core.node.backoff import BackoffRules, RepairBackoff, after_repair
from homeport.lazy_dataclass import dataclass

WHY_LENGTH_MAX: Final = 500
STARTS_KEPT: Final = 3

CALM: Final = BackoffRules(first_seconds=5.0, max_seconds=300.0, forget_seconds=1800.0)


@dataclass(frozen=True, slots=True)
class WatchRules:
    retell_seconds: float = 60.0
    """Minimum time between two reports with different reasons for the same problem."""
    calm: BackoffRules = CALM
    """How long a release has to be healthy before that is reported."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation of one component. Neither healthy nor unhealthy: unknown yet."""

    healthy: bool | None
    why: str = ""
    is_restarting: bool = False
    """Its engine already restarts it repeatedly: one more restart would not help."""


@dataclass(frozen=True, slots=True)
class ObservedHealth:
    """What was reported about one deployment, and what has been observed since."""

    unhealthy: bool = False
    why: str = ""
    reported_at: float = 0.0
    healthy_since: float | None = None
    relapses: RepairBackoff | None = None


@dataclass(frozen=True, slots=True)
class Announcement:
    healthy: bool
    component: str
    why: str


def look(
    watch: ObservedHealth, seen: Mapping[str, Seen], now: float, rules: WatchRules
) -> tuple[ObservedHealth, Announcement | None]:
    """The watch after one observation of all components, and the report for the site, if any."""
    bad = next(((name, each.why) for name, each in seen.items() if each.healthy is False), None)
    if bad is not None:
        return _bad(replace(watch, healthy_since=None), bad[0], bad[1][:WHY_LENGTH_MAX], now, rules)
    if not watch.unhealthy or any(each.healthy is None for each in seen.values()):
        return replace(watch, healthy_since=None), None
    since = now if watch.healthy_since is None else watch.healthy_since
    calm_seconds = 0.0 if watch.relapses is None else watch.relapses.not_before - watch.relapses.last
    if now - since < calm_seconds:
        return replace(watch, healthy_since=since), None
    return ObservedHealth(relapses=watch.relapses), Announcement(True, "", "healthy again")


def _bad(
    watch: ObservedHealth, component: str, why: str, now: float, rules: WatchRules
) -> tuple[ObservedHealth, Announcement | None]:
    if watch.unhealthy and (why == watch.why or now - watch.reported_at < rules.retell_seconds):
        return watch, None
    relapses = watch.relapses if watch.unhealthy else after_repair(watch.relapses, now, rules.calm)
    return ObservedHealth(True, why, now, None, relapses), Announcement(False, component, why)


def keeps_restarting(starts: tuple[float, ...], now: float, *, seconds: float) -> bool:
    """Whether a component that seems to run restarted repeatedly: its engine hides a crash loop."""
    return (
        len(starts) >= STARTS_KEPT
        and now - starts[-STARTS_KEPT] < STARTS_KEPT * seconds
        and now - starts[-1] < seconds
    )
