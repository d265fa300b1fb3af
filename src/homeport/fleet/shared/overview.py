"""The fleet as shown to users: deployments with their instances, sites with their nodes, and the most important note
about each. Central and site answer from their own store, with the same code.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from homeport.core.lifecycle.node import liveness_at_central, silent_since
from homeport.core.model.deployment import Hold, Pin
from homeport.core.model.event import Deployment, HistoryEntry, Site
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.reconcile.holds import active, by_site, hold_on, hold_text
from homeport.core.reconcile.plan import short
from homeport.errors import Conflict, NotFound
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.fleet.shared.named_sites import sites_by_name
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    DEPLOYMENTS,
    HOLDS,
    NODES,
    SITES,
    WHOLE,
    Cut,
    DeploymentFilter,
    HoldFilter,
    NodeFilter,
    ReachWindow,
    SeenReader,
    SiteFilter,
)
from homeport.vocabulary import (
    ID_PREFIX_LENGTH_MIN,
    UNPLACED,
    DeploymentId,
    Digest,
    Liveness,
    NodeId,
    SiteName,
    State,
    Trigger,
)

GONE = frozenset({State.DELETING, State.DELETED})
SETTLED = frozenset({State.INSTALLED, State.FAILED, State.DELETED})
SHOWN_MAX: Final = 5
KNOWN_MAX: Final = 1_000
"""Among how many names a suggestion for a mistyped one is searched."""
_ANY_TIME: Final = ReachWindow(datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class InstanceView:
    instance: Instance
    reachable: bool
    running_version: str | None = None
    """The version of the running release; None when it is unknown, or nothing runs."""


@dataclass(frozen=True, slots=True)
class DeploymentView:
    deployment: Deployment
    instances: tuple[InstanceView, ...]
    note: str
    hold: Hold | None = None

    @property
    def running_versions(self) -> tuple[str, ...]:
        """The versions that run on its nodes, which may differ from the wanted one."""
        return tuple(sorted({view.running_version for view in self.instances if view.running_version is not None}))

    @property
    def is_behind(self) -> bool:
        """Whether another release runs somewhere than Git wants: an update waits, failed or was rolled back."""
        running = {view.instance.running_revision for view in self.instances if view.instance.state not in GONE}
        return self.deployment.wanted and not running <= {None, self.deployment.revision}


@dataclass(frozen=True, slots=True)
class SiteView:
    site: Site
    reachable: bool
    nodes_count: int
    nodes_live_count: int
    deployments: Mapping[str, int]
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Reachability:
    """How a role detects unreachable sites. A site always reaches itself; central only has the sites' last
    contact."""

    site_silence_seconds: float | None = None
    listening_since: datetime | None = None
    """Since its start, or since its clock was set. No site counts as unreachable before it had the time to connect;
    None when that is long ago."""

    def is_reachable(self, site: Site | None, now: datetime) -> bool:
        window = self.window(now)
        if window is None:
            return True
        return site is not None and site.last_seen is not None and window.begin < site.last_seen < window.end

    def window(self, now: datetime) -> ReachWindow | None:
        """The time window of the last contact of a reachable site; None where every site counts as reachable."""
        if self.site_silence_seconds is None:
            return None
        limit = timedelta(seconds=self.site_silence_seconds)
        # A time in the future was recorded before the clock was set back: it says nothing about now.
        if self.listening_since is not None and abs(now - self.listening_since) < limit:
            return _ANY_TIME
        return ReachWindow(now - limit, now + limit)


@dataclass(frozen=True, slots=True)
class NodeView:
    node: Node
    liveness: Liveness
    since: datetime | None
    """Since when it is not live."""


async def view_nodes(
    reader: SeenReader, nodes: Sequence[Node], reachability: Reachability, now: datetime
) -> list[NodeView]:
    """Nodes with their liveness as known here: UNKNOWN at an unreachable site."""
    sites = await _sites_of(reader, nodes) if reachability.site_silence_seconds else {}

    def view(node: Node) -> NodeView:
        site = sites.get(node.site)
        is_reachable = reachability.is_reachable(site, now)
        return NodeView(
            node,
            liveness_at_central(node, is_site_reachable=is_reachable),
            silent_since(node, site, is_site_reachable=is_reachable),
        )

    return [view(node) for node in nodes]


async def view_deployments(
    reader: SeenReader, deployments: Sequence[Deployment], reachability: Reachability, now: datetime
) -> list[DeploymentView]:
    """Six queries, however many deployments there are, limited to these."""
    ids = [deployment.id for deployment in deployments]
    by_deployment: dict[DeploymentId, list[Instance]] = {}
    for instance in await reader.instances(ids) if ids else ():
        by_deployment.setdefault(instance.deployment_id, []).append(instance)
    names = frozenset(deployment.site for deployment in deployments)
    used = frozenset(instance.node_id for found in by_deployment.values() for instance in found)
    found = await reader.page(NODES, NodeFilter(sites=names, ids=used), WHOLE)
    nodes = {(node.site, node.id): node for node in found.items}
    sites = await _sites_of(reader, deployments)
    holds = by_site(active((await reader.page(HOLDS, HoldFilter(sites=names), WHOLE)).items, now))
    versions = await _versions(reader, deployments, by_deployment)
    pins = {(pin.deployment_id, pin.over): pin for pin in await reader.pins(ids)}
    return [
        _view(
            deployment,
            by_deployment.get(deployment.id, ()),
            nodes=nodes,
            site=sites.get(deployment.site),
            hold=hold_on(holds.get(deployment.site, ()), deployment.id, now),
            reachability=reachability,
            now=now,
            versions=versions,
            pin=pins.get((deployment.id, deployment.revision)),
        )
        for deployment in deployments
    ]


async def _versions(
    reader: SeenReader, deployments: Sequence[Deployment], by_deployment: Mapping[DeploymentId, Sequence[Instance]]
) -> Mapping[Digest, str]:
    """The app version of each revision. Stored revisions are only read where the running release is not the wanted
    one."""
    versions = {deployment.revision: deployment.app_version for deployment in deployments}
    others = [
        deployment.id
        for deployment in deployments
        if not {item.running_revision for item in by_deployment.get(deployment.id, ())} - {None} <= versions.keys()
    ]
    return {**await reader.versions_kept(others), **versions} if others else versions


class _Placed(Protocol):
    @property
    def site(self) -> SiteName: ...


async def _sites_of(reader: SeenReader, things: Sequence[_Placed]) -> Mapping[SiteName, Site]:
    names = frozenset(thing.site for thing in things)
    return await sites_by_name(reader, names)


async def find_deployment(reader: SeenReader, text: str) -> Deployment:
    """By id, as `name@site`, by a name that only one site has, or by a unique prefix of the id. A name that is no
    longer in use means the last deployment that had it."""
    name, separator, site = text.partition("@")
    exact = None if separator else await reader.deployment(DeploymentId(text))
    if exact is not None:
        return exact
    where = DeploymentFilter(site=SiteName(site) if separator else None, name=name)
    named = (await reader.page(DEPLOYMENTS, where, Cut(SHOWN_MAX))).items
    found = list(named)
    if not found and not separator and len(text) >= ID_PREFIX_LENGTH_MIN:
        found = list(await reader.deployments_by_prefix(text.lower()))
    found = found or await _last_archived(reader, where)
    if not found:
        missing = f'There is no deployment "{name}"' + (f' at site "{site}".' if separator else ".")
        known = (await reader.page(DEPLOYMENTS, DeploymentFilter(), Cut(KNOWN_MAX))).items
        raise NotFound(missing, hint=did_you_mean(name, [row.name for row in known], "homeport deployments list"))
    if len(found) > 1:
        listed = ", ".join(f"{row.name}@{row.site}" if named else row.id for row in found[:SHOWN_MAX])
        hint = f"Name one of  {listed}" if named else f"Give more characters of one of  {listed}"
        raise Conflict(f'"{text}" fits several deployments.', hint=hint)
    return found[0]


async def _last_archived(reader: SeenReader, where: DeploymentFilter) -> list[Deployment]:
    gone = (await reader.page(DEPLOYMENTS, replace(where, archived=True), Cut(KNOWN_MAX))).items
    return sorted(gone, key=lambda each: each.archived_at or each.updated_at)[-1:]


async def find_node(reader: SeenReader, text: str) -> Node:
    """By id, or as `id@site` where two sites have a node of that name."""
    name, _, site = text.partition("@")
    found = [node for node in await reader.nodes_called(NodeId(name)) if not site or node.site == site]
    if not found:
        known = (await reader.page(NODES, NodeFilter(), Cut(KNOWN_MAX))).items
        hint = did_you_mean(name, [node.id for node in known], "homeport nodes list")
        raise NotFound(f'There is no node "{text}".', hint=hint)
    if len(found) > 1:
        listed = ", ".join(f"{node.id}@{node.site}" for node in found[:5])
        raise Conflict(f'"{text}" fits several nodes: {listed}.', hint="Name its site too: NODE@SITE.")
    return found[0]


async def find_site(reader: SeenReader, text: str) -> Site:
    site = await reader.site(SiteName(text))
    if site is None:
        known = (await reader.page(SITES, SiteFilter(), Cut(KNOWN_MAX))).items
        hint = did_you_mean(text, [site.name for site in known], "homeport sites list")
        raise NotFound(f'There is no site "{text}".', hint=hint)
    return site


def bare_site(site: Site, reachability: Reachability, now: datetime) -> SiteView:
    """A site without counts."""
    return SiteView(site, reachability.is_reachable(site, now), 0, 0, {})


async def view_sites(
    reader: SeenReader, sites: Sequence[Site], reachability: Reachability, now: datetime
) -> list[SiteView]:
    """Counts are computed by the store, for these sites alone."""
    names = frozenset(site.name for site in sites)
    seen = NodeFilter(sites=names, window=reachability.window(now))
    nodes: dict[SiteName, Counter[str]] = {name: Counter() for name in names}
    for (site, liveness), count in (await reader.counts(NODES, seen, ("site", "liveness"))).items():
        nodes[site][liveness] = count
    states: dict[SiteName, dict[str, int]] = {name: {} for name in names}
    by_state = await reader.counts(DEPLOYMENTS, DeploymentFilter(sites=names), ("site", "state"))
    for (site, state), count in sorted(by_state.items()):
        states[site][state] = count
    holds = by_site(active((await reader.page(HOLDS, HoldFilter(sites=names), WHOLE)).items, now))
    return [
        SiteView(
            site=site,
            reachable=reachability.is_reachable(site, now),
            nodes_count=nodes[site.name].total(),
            nodes_live_count=nodes[site.name][Liveness.LIVE],
            deployments=states[site.name],
            holds=tuple(holds.get(site.name, ())),
        )
        for site in sites
    ]


def is_settled(deployment: Deployment, instances: Sequence[Instance], history: Sequence[HistoryEntry]) -> bool:
    """Whether the last request has been completed, successfully or not.

    INSTALLED alone does not say so: right after an update is requested, the old release is still INSTALLED. It counts
    once every instance is at the wanted revision, or has tried it and rolled back.
    """
    if deployment.state is State.DELETED or deployment.archived_at is not None:
        return True
    if not deployment.wanted or deployment.state not in SETTLED:
        return False
    if any(item.next_at is not None for item in instances):
        return False  # Its site retries, or rolls back, by itself.
    tried = {
        entry.node_id
        for entry in history
        if entry.revision == deployment.revision and entry.trigger is Trigger.GAVE_UP
    }
    placed = [instance for instance in instances if instance.node_id != UNPLACED] or list(instances)
    # What runs elsewhere stays for as long as its successor is not healthy.
    is_over = any(item.state is State.FAILED and item.revision == deployment.revision for item in placed)
    return all(
        item.revision in (deployment.revision, None)
        or item.node_id in tried
        or (is_over and item.state is State.INSTALLED)
        for item in placed
    )


def _view(
    deployment: Deployment,
    instances: Sequence[Instance],
    *,
    nodes: Mapping[tuple[SiteName, NodeId], Node],
    site: Site | None,
    hold: Hold | None,
    reachability: Reachability,
    now: datetime,
    versions: Mapping[Digest, str],
    pin: Pin | None,
) -> DeploymentView:
    site_reachable = reachability.is_reachable(site, now)
    views = tuple(
        InstanceView(
            instance,
            site_reachable and _is_live(site, instance.node_id, nodes),
            None if instance.running_revision is None else versions.get(instance.running_revision),
        )
        for instance in sorted(instances, key=lambda instance: instance.node_id)
    )
    notes = _Notes(
        site=site,
        site_reachable=site_reachable,
        hold=hold if hold is not None and _wants_change(deployment, views) else None,
        pin=pin,
        now=now,
    )
    return DeploymentView(deployment, views, _note(deployment, views, notes), hold)


@dataclass(frozen=True, slots=True)
class _Notes:
    """Further inputs of a note."""

    site: Site | None
    site_reachable: bool
    hold: Hold | None
    """Only where it prevents something."""
    pin: Pin | None
    """Only where Git still has the revision that was rolled back."""
    now: datetime


def _wants_change(deployment: Deployment, views: Sequence[InstanceView]) -> bool:
    """Whether a hold prevents any change."""
    if deployment.archived_at is not None:
        return False
    return not deployment.wanted or not views or any(view.instance.revision != deployment.revision for view in views)


def _is_live(site: Site | None, node_id: NodeId, nodes: Mapping[tuple[SiteName, NodeId], Node]) -> bool:
    if node_id == UNPLACED or site is None:
        return node_id == UNPLACED
    node = nodes.get((site.name, node_id))
    # A Margo client runs no software of ours and has devices instead of nodes: they are in reach when it is.
    return not site.software_version if node is None else node.liveness is not Liveness.LOST


def _note(deployment: Deployment, views: Sequence[InstanceView], known: _Notes) -> str:
    """The first of these that is true; an empty note means that all is well."""
    if deployment.archived_at is not None:
        return deployment.problem or ""
    there = [view for view in views if view.instance.state is not State.DELETED]
    silent = [view.instance.node_id for view in there if not view.reachable]
    notes = (
        deployment.problem,
        None if known.site_reachable else offline_note(known.site, known.now),
        None if known.hold is None else hold_text(known.hold),
        next(
            (_failure_note(view, deployment) for view in views if view.instance.is_failing(deployment.revision)), None
        ),
        next((_step_note(view.instance) for view in views if view.instance.state not in SETTLED), None),
        next((_health_note(view.instance, known.now) for view in views if view.instance.unhealthy), None),
        f"{', '.join(silent[:3])} cannot be reached" if silent else None,
        None
        if known.pin is None
        else f"{known.pin.author} went back from {deployment.app_version}: {known.pin.reason}",
        f"waiting for {'a node of ' if views else ''}site {deployment.site}"
        if deployment.wanted and not there
        else None,
        _outdated_note(deployment, views),
    )
    return next((note for note in notes if note), "")


def _failure_note(view: InstanceView, deployment: Deployment) -> str:
    instance = view.instance
    assert instance.failure is not None
    what = str(instance.failure)
    if instance.state is State.INSTALLED and instance.rejected_revision is not None:
        what = f"rolled back to {view.running_version or short(instance.running_revision)}: {what}"
    elif instance.state is State.FAILED and instance.next_at is not None:
        what = f"{what}; {instance.step}" if instance.step else what
    return f"{instance.node_id or deployment.site}: {what}"


def _outdated_note(deployment: Deployment, views: Sequence[InstanceView]) -> str | None:
    """What is settled at another release than Git's shows it, whatever the reason."""
    others = [view for view in views if view.instance.running_revision not in (None, deployment.revision)]
    if not others or deployment.state is not State.INSTALLED:
        return None
    running = sorted({view.running_version or short(view.instance.running_revision) for view in others})
    if running == [deployment.app_version]:
        return f"runs another revision of {deployment.app_version} than Git asks for"
    return f"runs {', '.join(running)}, Git asks for {deployment.app_version}"


def _health_note(instance: Instance, now: datetime) -> str:
    assert instance.unhealthy is not None
    since = elapsed_text(now - instance.unhealthy.since)
    return f"{instance.node_id}: unhealthy for {since}: {instance.unhealthy.why}"


def _step_note(instance: Instance) -> str:
    return f"{instance.node_id}: {instance.step}" if instance.node_id and instance.step else instance.step


def offline_note(site: Site | None, now: datetime) -> str:
    if site is None or site.last_seen is None:
        return "the site has not connected yet"
    return f"site offline for {elapsed_text(now - site.last_seen)}"


def elapsed_text(length: timedelta) -> str:
    minutes = int(length.total_seconds() // 60)
    return f"{minutes // 60} h" if minutes >= 60 else f"{minutes} m" if minutes > 0 else "less than a minute"
