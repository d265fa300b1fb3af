"""Several rollouts of one name: for each site the newest one counts. An older one continues with its remaining sites,
and is superseded when none are left."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from homeport.core.lifecycle.rollout import GIVING, OPEN
from homeport.core.model.event import Site
from homeport.core.model.rollout import Rollout
from homeport.vocabulary import RolloutId, RolloutState, SiteName

CLAIMING: Final = OPEN | {RolloutState.DONE}
"""One that was aborted or superseded claims no site."""


def newest_first(rollouts: Iterable[Rollout]) -> list[Rollout]:
    return sorted(rollouts, key=lambda each: (each.intent.created_at, each.intent.id), reverse=True)


def targeted(rollout: Rollout, sites: Sequence[Site]) -> frozenset[SiteName]:
    """Every site that it was given to or selects. A site that lost its label keeps what it got."""
    intent = rollout.intent
    return intent.given | {site.name for site in sites if intent.targets(site.name, site.labels)}


def owned(
    rollouts: Sequence[Rollout], sites: Sequence[Site], claiming: Collection[RolloutState] = CLAIMING
) -> Mapping[RolloutId, frozenset[SiteName]]:
    """The sites of each rollout that no newer one of the same name claims."""
    claimed: set[SiteName] = set()
    found: dict[RolloutId, frozenset[SiteName]] = {}
    for rollout in newest_first(rollouts):
        aims = targeted(rollout, sites)
        found[rollout.intent.id] = aims - claimed
        if rollout.state in claiming:
            claimed |= aims
    return found


def superseded_by(rollout: Rollout, rollouts: Sequence[Rollout], sites: Sequence[Site]) -> Rollout | None:
    """The newest claiming rollout, if it and others leave no site to this one.

    A rollout that is done still serves sites that join its group, so only one that is done for the same group
    supersedes it.
    """
    is_done = rollout.state is RolloutState.DONE
    claiming = {RolloutState.DONE} if is_done else CLAIMING
    aims = targeted(rollout, sites)
    if not aims or owned(rollouts, sites, claiming)[rollout.intent.id]:
        return None
    newest = next(each for each in newest_first(rollouts) if each.state in claiming)
    if is_done and rollout.intent.selector and rollout.intent.selector != newest.intent.selector:
        return None
    return newest


def latecomers(rollouts: Sequence[Rollout], sites: Sequence[Site]) -> dict[RolloutId, list[SiteName]]:
    """For each rollout that is done: the sites that have joined its group since."""
    found: dict[RolloutId, list[SiteName]] = {}
    giving = [each for each in newest_first(rollouts) if each.state in GIVING]
    for site in sites:
        newest = next((each for each in giving if each.intent.targets(site.name, site.labels)), None)
        if newest is not None and newest.state is RolloutState.DONE and site.name not in newest.intent.given:
            found.setdefault(newest.intent.id, []).append(site.name)
    return found
