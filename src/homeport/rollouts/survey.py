"""The current state of all rollouts of one name: every site of each, derived from Git, the deployments and the sites'
last contact. The loop decides by it, and it is what users see."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.core.model.deployment import Hold
from homeport.core.model.event import Deployment, Site
from homeport.core.model.instance import Instance
from homeport.core.model.rollout import Member, Rollout
from homeport.core.reconcile.holds import by_site, hold_on
from homeport.core.rollout.group import owned, targeted
from homeport.core.rollout.standing import RolloutSiteFacts, member_of
from homeport.fleet.central.sightings import Sightings
from homeport.fleet.shared.named_sites import sites_by_name
from homeport.fleet.shared.overview import Reachability
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    HOLDS,
    SITES,
    WHOLE,
    Clock,
    DeploymentFilter,
    GitSource,
    HoldFilter,
    Seen,
    SeenReader,
    SiteFilter,
)
from homeport.rollouts.rows import readable
from homeport.vocabulary import Commit, DeploymentId, RolloutId, RolloutState, SiteName

NAMED_MAX: Final = 5_000
"""So many sites are named in a query."""


@dataclass(frozen=True, slots=True)
class Survey:
    rollouts: Sequence[Rollout]
    """All stored rollouts of the name."""
    sites: Sequence[Site]
    """Those that belong to any of them: named, given the release, or matched by a selector."""
    members: Mapping[RolloutId, tuple[Member, ...]]
    """Of the requested ones. Once a rollout is done, also the sites that joined its group since."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is known of these sites, for one name."""

    sites: Sequence[Site]
    deployments: Mapping[SiteName, Deployment]
    instances: Mapping[DeploymentId, Sequence[Instance]]
    holds: Mapping[SiteName, Sequence[Hold]]


async def look(
    reader: SeenReader,
    git: GitSource,
    name: str,
    *,
    reachability: Reachability,
    sightings: Sightings,
    clock: Clock,
    only: Collection[RolloutId] | None = None,
) -> Survey:
    now, moment = clock.now(), clock.monotonic()
    rollouts = readable(await reader.rollouts(name=name))
    fleet = await _fleet(reader, name, await _sites(reader, rollouts))
    asked = [rollout for rollout in rollouts if only is None or rollout.intent.id in only]
    members = {}
    mine = owned(rollouts, fleet.sites)
    known = {each.intent.id: each for each in rollouts}
    places = [_place(site, reachability.is_reachable(site, now), fleet, now) for site in fleet.sites]
    places = [replace(place, failing_seconds=sightings.failing_seconds(place.instances, moment)) for place in places]
    for rollout in asked:
        aims = targeted(rollout, fleet.sites) if rollout.state is RolloutState.DONE else mine[rollout.intent.id]
        later = await _later(git, rollout, fleet.deployments.values())
        overtaken = {row.site for row in fleet.deployments.values() if _is_overtaken(row, rollout, known, later)}
        members[rollout.intent.id] = tuple(
            member_of(rollout, replace(place, is_overtaken=place.site in overtaken))
            for place in places
            if place.site in rollout.intent.given or place.site in aims
        )
    return Survey(rollouts, fleet.sites, members)


async def _sites(reader: SeenReader, rollouts: Sequence[Rollout]) -> Sequence[Site]:
    """A rollout of three sites reads three, however large the fleet is."""
    found: dict[SiteName, Site] = {}
    for selector in dict.fromkeys(rollout.intent.selector for rollout in rollouts if rollout.intent.selector):
        matching = await reader.page(SITES, SiteFilter(selector=selector), WHOLE)
        found |= {site.name: site for site in matching.items}
    named = {site for rollout in rollouts for site in (*rollout.intent.sites, *rollout.intent.given)} - found.keys()
    if named:
        found |= await sites_by_name(reader, named)
    return [found[name] for name in sorted(found)]


async def _fleet(reader: SeenReader, name: str, sites: Sequence[Site]) -> Fleet:
    names = {site.name for site in sites}
    rows = await reader.deployments(_at(DeploymentFilter(name=name), names))
    wanted = {row.site: row for row in rows if row.wanted and row.site in names}
    instances: dict[DeploymentId, list[Instance]] = {}
    for item in await reader.instances([row.id for row in wanted.values()]) if wanted else ():
        instances.setdefault(item.deployment_id, []).append(item)
    holds = await reader.page(HOLDS, _at(HoldFilter(), names), WHOLE)
    return Fleet(sites, wanted, instances, by_site(holds.items))


def _at(where: Seen, sites: Collection[SiteName]) -> Seen:
    """Of more sites than a database takes as parameters, all are read."""
    return where.within(sites) if len(sites) <= NAMED_MAX else where


async def _later(git: GitSource, rollout: Rollout, deployments: Collection[Deployment]) -> frozenset[Commit]:
    """The commits after the rollout's first in which others changed a deployment of it."""
    first = rollout.first_commit
    others = {row.commit for row in deployments if row.rollout_id != rollout.intent.id} - {first}
    return frozenset([commit for commit in sorted(others) if await git.is_ancestor(first, commit)])


def _place(site: Site, is_reachable: bool, fleet: Fleet, now: datetime) -> RolloutSiteFacts:
    row = fleet.deployments.get(site.name)
    return RolloutSiteFacts(
        site=site.name,
        is_reachable=is_reachable,
        deployment=row,
        instances=fleet.instances.get(row.id, ()) if row else (),
        hold=hold_on(fleet.holds.get(site.name, ()), row.id if row else None, now),
    )


def _is_overtaken(
    row: Deployment, rollout: Rollout, known: Mapping[RolloutId, Rollout], later: frozenset[Commit]
) -> bool:
    """Whether something else changed it after this rollout began. An older rollout that was given in between (while
    this one was paused, for example) does not count where this one's turn is still to come."""
    intent = rollout.intent
    if row.rollout_id == intent.id or row.commit not in later:
        return False
    writer = known.get(row.rollout_id) if row.rollout_id is not None else None
    if writer is None or row.site in intent.given:
        return True
    return (writer.intent.created_at, writer.intent.id) > (intent.created_at, intent.id)
