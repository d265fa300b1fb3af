"""The status of the whole fleet: counts from the store, and the first items that need attention."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Generic, Literal

from homeport.core.jobs.job import OPEN
from homeport.core.model.event import Deployment, Site
from homeport.core.model.node import Node
from homeport.fleet.shared.overview import (
    NodeView,
    Reachability,
    elapsed_text,
    offline_note,
    view_deployments,
    view_nodes,
)
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    SITES,
    Cut,
    DeploymentFilter,
    Item,
    JobFilter,
    Listing,
    NodeFilter,
    Seen,
    SeenReader,
    SiteFilter,
)
from homeport.vocabulary import JobState, Liveness, State

LISTED_MAX: Final = 10
"""Per kind: a page is read, a list of a thousand is searched."""
READ_MAX: Final = 500
Kind = Literal["site", "node", "deployment"]


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that an operator should look at."""

    kind: Kind
    name: str
    site: str
    why: str


@dataclass(frozen=True, slots=True)
class FleetCounts:
    sites: int
    sites_in_reach: int
    nodes: Mapping[str, int]
    """By liveness."""
    deployments: Mapping[str, int]
    """By state."""
    jobs: Mapping[str, int]
    """By state, those that have not ended."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    counts: FleetCounts
    devices: int
    """Of Margo clients."""
    attention: Sequence[Attention]
    """The first `LISTED_MAX` of each kind."""
    attention_counts: Mapping[str, int]
    """The total number of each kind."""


async def count_fleet(reader: SeenReader, reachability: Reachability, now: datetime) -> FleetCounts:
    window = reachability.window(now)
    sites = (await reader.counts(SITES, SiteFilter()))[()]
    in_reach = sites if window is None else (await reader.counts(SITES, SiteFilter(window=window, in_reach=True)))[()]
    nodes = await reader.counts(NODES, NodeFilter(window=window), ("liveness",))
    deployments = await reader.counts(DEPLOYMENTS, DeploymentFilter(), ("state",))
    jobs = await reader.counts(JOBS, JobFilter(states=OPEN), ("state",))
    return FleetCounts(
        sites=sites,
        sites_in_reach=in_reach,
        nodes={each.value: nodes.get((each.value,), 0) for each in Liveness},
        deployments={state: count for (state,), count in sorted(deployments.items())},
        jobs={state.value: jobs.get((state.value,), 0) for state in JobState if state in OPEN},
    )


async def fleet_status(reader: SeenReader, reachability: Reachability, now: datetime) -> FleetStatus:
    window = reachability.window(now)
    sites = await _first(reader, SITES, SiteFilter(window=window, attention=True))
    nodes = await _first(reader, NODES, NodeFilter(window=window, attention=True))
    deployments = await _first(reader, DEPLOYMENTS, DeploymentFilter(attention=True))
    rows = deployments.items
    if deployments.count > len(rows):  # so many that failed ones may not be among them
        failed = await reader.page(DEPLOYMENTS, DeploymentFilter(state=State.FAILED), Cut(LISTED_MAX))
        rows = [*failed.items, *rows]
    return FleetStatus(
        counts=await count_fleet(reader, reachability, now),
        devices=sum((await reader.margo_device_counts()).values()),
        attention=[
            *(_site(site, reachability, now) for site in sites.items[:LISTED_MAX]),
            *await _nodes(reader, nodes.items[:LISTED_MAX], reachability, now),
            *await _deployments(reader, _failed_first(rows)[:LISTED_MAX], reachability, now),
        ],
        attention_counts={"site": sites.count, "node": nodes.count, "deployment": deployments.count},
    )


@dataclass(frozen=True, slots=True)
class _First(Generic[Item]):
    items: Sequence[Item]
    count: int
    """The total number."""


async def _first(reader: SeenReader, listing: Listing[Item, Seen], where: Seen) -> _First[Item]:
    """Counted by the store only where there is more than one page: finding them is what takes long."""
    found = await reader.page(listing, where, Cut(READ_MAX))
    count = len(found.items) if found.next is None else (await reader.counts(listing, where))[()]
    return _First(found.items, count)


def _failed_first(rows: Sequence[Deployment]) -> list[Deployment]:
    once = {row.id: row for row in rows}
    return sorted(once.values(), key=lambda row: row.state is not State.FAILED)


def _site(site: Site, reachability: Reachability, now: datetime) -> Attention:
    silent = None if reachability.is_reachable(site, now) else offline_note(site, now)
    return Attention("site", site.name, site.name, silent or site.problem or "")


async def _nodes(
    reader: SeenReader, nodes: Sequence[Node], reachability: Reachability, now: datetime
) -> list[Attention]:
    views = await view_nodes(reader, nodes, reachability, now)
    return [Attention("node", view.node.id, view.node.site, _node_text(view, now)) for view in views]


def _node_text(view: NodeView, now: datetime) -> str:
    if view.since is None:
        return view.node.problem or ""
    silent = f"{view.liveness} for {elapsed_text(now - view.since)}"
    return f"{silent}; {view.node.problem}" if view.node.problem else silent


async def _deployments(
    reader: SeenReader, rows: Sequence[Deployment], reachability: Reachability, now: datetime
) -> list[Attention]:
    views = await view_deployments(reader, rows, reachability, now)
    return [
        Attention("deployment", view.deployment.name, view.deployment.site, view.note or view.deployment.state)
        for view in views
    ]
