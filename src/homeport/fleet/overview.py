"""What a person sees of the fleet: deployments with their instances, sites with their nodes, and the one thing
worth knowing about each. Central and site answer these from their own store, with the same code.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from homeport.core.model.deployment import Hold
from homeport.core.model.event import Deployment, HistoryEntry, Site
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.reconcile.holds import active, by_site, hold_on, hold_text
from homeport.core.reconcile.plan import short
from homeport.errors import Conflict, NotFound
from homeport.fleet.suggestion import did_you_mean
from homeport.ports import DeploymentFilter, Reader
from homeport.vocabulary import (
    ID_PREFIX_LENGTH_MIN,
    UNPLACED,
    DeploymentId,
    Digest,
    Happening,
    Liveness,
    NodeId,
    SiteName,
    State,
)

SETTLED = frozenset({State.INSTALLED, State.FAILED, State.DELETED})


@dataclass(frozen=True, slots=True)
class InstanceView:
    instance: Instance
    reachable: bool
    running_version: str | None = None
    """The version of what runs; None when that is not known, or nothing runs."""


@dataclass(frozen=True, slots=True)
class DeploymentView:
    deployment: Deployment
    instances: tuple[InstanceView, ...]
    note: str
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class SiteView:
    site: Site
    reachable: bool
    nodes_count: int
    nodes_live_count: int
    deployments: Mapping[str, int]
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Watchfulness:
    """How a role judges silence. A site has itself always in reach; central hears sites only now and then."""

    site_silence_seconds: float | None = None
    listening_since: datetime | None = None
    """Since its start, or since its clock was set. Nobody is taken for silent before they had the time to call; None
    when it has listened for long."""

    def is_reachable(self, site: Site | None, now: datetime) -> bool:
        if self.site_silence_seconds is None:
            return True
        if site is None or site.last_seen is None:
            return False
        limit = timedelta(seconds=self.site_silence_seconds)
        # A time far ahead was noted before the clock was set back: it says nothing of who is there now.
        known = [each for each in (site.last_seen, self.listening_since) if each is not None and each - now < limit]
        return any(now - each < limit for each in known)


async def view_deployments(
    reader: Reader, deployments: Sequence[Deployment], watchfulness: Watchfulness, now: datetime
) -> list[DeploymentView]:
    """Four queries, however many deployments there are."""
    ids = [deployment.id for deployment in deployments]
    by_deployment: dict[DeploymentId, list[Instance]] = {}
    for instance in await reader.instances(ids) if ids else ():
        by_deployment.setdefault(instance.deployment_id, []).append(instance)
    one_site = deployments[0].site if len({deployment.site for deployment in deployments}) == 1 else None
    nodes = {(node.site, node.id): node for node in await reader.nodes(one_site)}
    sites = {site.name: site for site in await reader.sites()}
    holds = by_site(active(await reader.holds(one_site), now))
    versions = await _versions(reader, deployments, by_deployment)
    return [
        _view(
            deployment,
            by_deployment.get(deployment.id, ()),
            nodes=nodes,
            site=sites.get(deployment.site),
            hold=hold_on(holds.get(deployment.site, ()), deployment.id, now),
            watchfulness=watchfulness,
            now=now,
            versions=versions,
        )
        for deployment in deployments
    ]


async def _versions(
    reader: Reader, deployments: Sequence[Deployment], by_deployment: Mapping[DeploymentId, Sequence[Instance]]
) -> Mapping[Digest, str]:
    """Which version each revision is. Only where something else runs than is wanted are kept revisions read."""
    versions = {deployment.revision: deployment.app_version for deployment in deployments}
    for deployment in deployments:
        running = {item.running_revision for item in by_deployment.get(deployment.id, ())} - {None}
        if not running <= versions.keys():
            versions |= {each.revision: each.app_version for each in await reader.revisions(deployment.id)}
    return versions


async def find_deployment(reader: Reader, text: str) -> Deployment:
    """By id, by a prefix of the id that fits only one, or as `name@site`."""
    name, separator, site = text.partition("@")
    if separator:
        found = list(await reader.deployments(DeploymentFilter(site=SiteName(site), name=name)))
        missing = f'There is no deployment "{name}" at site "{site}".'
    else:
        exact = await reader.deployment(DeploymentId(text))
        if exact is not None:
            return exact
        found = list(await reader.deployments_by_prefix(text)) if len(text) >= ID_PREFIX_LENGTH_MIN else []
        missing = f'There is no deployment "{text}".'
    if not found:
        raise NotFound(missing, hint="List them:  homeport deployments list")
    if len(found) > 1:
        listed = ", ".join(sorted(deployment.id for deployment in found)[:5])
        raise Conflict(f'"{text}" fits several deployments: {listed}.', hint="Give more characters of the id.")
    return found[0]


async def find_node(reader: Reader, text: str) -> Node:
    """By id, or as `id@site` where two sites have a node of that name."""
    name, _, site = text.partition("@")
    found = [node for node in await reader.nodes_called(NodeId(name)) if not site or node.site == site]
    if not found:
        hint = did_you_mean(name, [node.id for node in await reader.nodes()], "homeport nodes list")
        raise NotFound(f'There is no node "{text}".', hint=hint)
    if len(found) > 1:
        listed = ", ".join(f"{node.id}@{node.site}" for node in found[:5])
        raise Conflict(f'"{text}" fits several nodes: {listed}.', hint="Name its site too: NODE@SITE.")
    return found[0]


async def find_site(reader: Reader, text: str) -> Site:
    site = await reader.site(SiteName(text))
    if site is None:
        hint = did_you_mean(text, [site.name for site in await reader.sites()], "homeport sites list")
        raise NotFound(f'There is no site "{text}".', hint=hint)
    return site


async def view_sites(reader: Reader, watchfulness: Watchfulness, now: datetime) -> list[SiteView]:
    nodes = Counter(node.site for node in await reader.nodes())
    live = Counter(node.site for node in await reader.nodes() if node.liveness is Liveness.LIVE)
    holds = active(await reader.holds(), now)
    states: dict[SiteName, Counter[str]] = {}
    for deployment in await reader.deployments(DeploymentFilter()):
        states.setdefault(deployment.site, Counter())[deployment.state.value] += 1
    return [
        SiteView(
            site=site,
            reachable=watchfulness.is_reachable(site, now),
            nodes_count=nodes[site.name],
            nodes_live_count=live[site.name],
            deployments=dict(states.get(site.name, {})),
            holds=tuple(hold for hold in holds if hold.site == site.name),
        )
        for site in await reader.sites()
    ]


def is_settled(deployment: Deployment, instances: Sequence[Instance], history: Sequence[HistoryEntry]) -> bool:
    """Whether what was asked for last has come to its end, good or bad.

    INSTALLED alone does not say so: right after an update is asked for, the old release is still INSTALLED. It
    counts once every instance is at the wanted revision, or has tried it and gone back.
    """
    if deployment.state is State.DELETED or deployment.archived_at is not None:
        return True
    if not deployment.wanted or deployment.state not in SETTLED:
        return False
    if any(item.next_at is not None for item in instances):
        return False  # Its site tries again, or goes back, by itself.
    tried = {
        entry.node_id
        for entry in history
        if entry.revision == deployment.revision and entry.happening is Happening.GAVE_UP
    }
    placed = [instance for instance in instances if instance.node_id != UNPLACED] or list(instances)
    return all(item.revision in (deployment.revision, None) or item.node_id in tried for item in placed)


def _view(
    deployment: Deployment,
    instances: Sequence[Instance],
    *,
    nodes: Mapping[tuple[SiteName, NodeId], Node],
    site: Site | None,
    hold: Hold | None,
    watchfulness: Watchfulness,
    now: datetime,
    versions: Mapping[Digest, str],
) -> DeploymentView:
    site_reachable = watchfulness.is_reachable(site, now)
    views = tuple(
        InstanceView(
            instance,
            site_reachable and _is_live(deployment.site, instance.node_id, nodes),
            None if instance.running_revision is None else versions.get(instance.running_revision),
        )
        for instance in sorted(instances, key=lambda instance: instance.node_id)
    )
    waits = hold if hold is not None and _wants_change(deployment, views) else None
    return DeploymentView(
        deployment, views, _note(deployment, views, site, hold=waits, site_reachable=site_reachable, now=now), hold
    )


def _wants_change(deployment: Deployment, views: Sequence[InstanceView]) -> bool:
    """Whether a hold keeps anything from happening."""
    if deployment.archived_at is not None:
        return False
    return not deployment.wanted or not views or any(view.instance.revision != deployment.revision for view in views)


def _is_live(site: SiteName, node_id: NodeId, nodes: Mapping[tuple[SiteName, NodeId], Node]) -> bool:
    node = nodes.get((site, node_id))
    return node_id == UNPLACED or (node is not None and node.liveness is not Liveness.LOST)


def _note(
    deployment: Deployment,
    views: Sequence[InstanceView],
    site: Site | None,
    *,
    hold: Hold | None,
    site_reachable: bool,
    now: datetime,
) -> str:
    """The first of these that is true; an empty note means that all is well."""
    if deployment.archived_at is not None:
        return deployment.problem or ""
    silent = [view.instance.node_id for view in views if not view.reachable]
    notes = (
        deployment.problem,
        None if site_reachable else _offline_note(site, now),
        None if hold is None else hold_text(hold),
        next((_failure_note(view, deployment) for view in views if view.instance.failure), None),
        next((_step_note(view.instance) for view in views if view.instance.state not in SETTLED), None),
        f"{', '.join(silent[:3])} cannot be reached" if silent else None,
        f"waiting for site {deployment.site}" if deployment.wanted and not views else None,
    )
    return next((note for note in notes if note), "")


def _failure_note(view: InstanceView, deployment: Deployment) -> str:
    instance = view.instance
    assert instance.failure is not None
    what = f"{instance.failure.message} ({instance.failure.code})"
    if instance.state is State.INSTALLED and instance.rejected_revision is not None:
        what = f"rolled back to {view.running_version or short(instance.running_revision)}: {what}"
    elif instance.state is State.FAILED and instance.next_at is not None:
        what = f"{what}; {instance.step}" if instance.step else what
    return f"{instance.node_id or deployment.site}: {what}"


def _step_note(instance: Instance) -> str:
    return f"{instance.node_id}: {instance.step}" if instance.node_id and instance.step else instance.step


def _offline_note(site: Site | None, now: datetime) -> str:
    if site is None or site.last_seen is None:
        return "its site has not called yet"
    minutes = int((now - site.last_seen).total_seconds() // 60)
    words = f"{minutes // 60} h" if minutes >= 60 else f"{minutes} m" if minutes else "less than a minute"
    return f"site offline for {words}"
