"""The plan of a deploy or a delete: what it would do, at which site, node and component, and why. Changes nothing.

Derived from central's copy of the nodes, with the same placement that the site will use: a site with changes that it
has not reported yet may still decide otherwise.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Final, Literal

import anyio.to_thread

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.data import volume_prefix
from homeport.core.images import ImageChange
from homeport.core.model.app import Value
from homeport.core.model.deployment import ComponentSpec, Desired, Hold
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import Placed
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.demand import place_deployment, reserved
from homeport.core.reconcile.holds import active, by_site, hold_text
from homeport.fleet.central.deploy import GitWriter, Written, check_deletable, write_files
from homeport.fleet.central.merging import SITES_LOOKED_AT_MAX, MergedRequest, merge_targets, present_files
from homeport.fleet.central.resolve import DeployRequest, resolve
from homeport.fleet.shared.overview import find_deployment
from homeport.lazy_dataclass import dataclass
from homeport.ports import DeploymentFilter, Reader
from homeport.vocabulary import (
    UNPLACED,
    DeploymentId,
    Digest,
    Liveness,
    NodeId,
    PlacementMode,
    RolloutId,
    SiteName,
    State,
)

Action = Literal["install", "replace", "keep", "remove"]
PREVIEW = DeploymentId("00000000-0000-4000-8000-000000000000")
"""Placeholder for the id of a new deployment."""


@dataclass(frozen=True, slots=True)
class ComponentStep:
    component: str
    action: Action
    why: str
    before: ComponentSpec | None = None
    """As it runs now; None where it does not, or that is not known."""
    after: ComponentSpec | None = None
    images: tuple[ImageChange, ...] | None = None
    """None where they are not known."""
    pull_bytes: int | None = None
    """At most; None where it is not known."""


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    site: SiteName
    before: Deployment | None
    after: Desired | None
    """None for a deletion."""
    name: str
    action: Literal["create", "update", "delete", "unchanged"]
    nodes: Mapping[NodeId, tuple[ComponentStep, ...]]
    refused: Mapping[NodeId, str]
    parameters: tuple[tuple[str, Value | None, Value | None], ...]
    waits: str | None
    warnings: tuple[str, ...] = ()
    """What would fail, or may be unexpected."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Values that were set before, are not given again and stay."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Values that were set before and are dropped, and why."""
    architectures: Mapping[NodeId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    deployments: tuple[DeploymentPlan, ...]

    @property
    def changes(self) -> bool:
        return any(plan.action != "unchanged" for plan in self.deployments)

    def count(self, action: Action) -> int:
        return sum(
            step.action == action for plan in self.deployments for steps in plan.nodes.values() for step in steps
        )


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What central knows about the affected sites."""

    nodes: Mapping[SiteName, Sequence[Node]]
    instances: Mapping[DeploymentId, Sequence[Instance]]
    around: Mapping[SiteName, Sequence[Instance]]
    """All instances at a site, where their number affects the placement."""
    files: Mapping[DeploymentId, Desired]
    """The current file in Git, where it is valid."""
    past: Mapping[tuple[DeploymentId, Digest], Desired]
    """Revisions that run though Git has another: rolled back, on hold or refused by every node."""
    holds: Mapping[SiteName, Sequence[Hold]]
    """The active holds."""

    def runs(self, item: Instance | None) -> Desired | None:
        """The release that an instance runs; None where none does, or it is no longer known."""
        if item is None or item.running_revision is None or item.state is State.DELETED:
            return None
        file = self.files.get(item.deployment_id)
        if file is not None and file.revision == item.running_revision:
            return file
        return self.past.get((item.deployment_id, item.running_revision))


async def preview_deploy(request: DeployRequest, git_writer: GitWriter, now: datetime) -> Plan:
    await _catch_up(git_writer)
    async with git_writer.store.read() as reader:
        resolved = await resolve(reader, request)
        commit = await git_writer.index.indexed()
        merged = await merge_targets(reader, git_writer.git, commit, resolved, in_thread=git_writer.in_thread)
        rows = list(merged.present.values())
        sites = [target.site for target in resolved.targets]
        spread = any(each.placement.mode is not PlacementMode.EACH for each in merged.values.values())
        fleet = await _look(reader, rows, merged.files, sites, now, spread=spread)
    return await anyio.to_thread.run_sync(_plan_deploy, merged, fleet)


async def preview_delete(text: str, git_writer: GitWriter, now: datetime, *, remove_data: bool = False) -> Plan:
    await _catch_up(git_writer)
    async with git_writer.store.read() as reader:
        row = await find_deployment(reader, text)
        check_deletable(row)
        commit = await git_writer.index.indexed()
        files = await present_files(git_writer.git, commit, [row], in_thread=git_writer.in_thread)
        fleet = await _look(reader, [row], files, [row.site], now)
    held = {item.node_id: item for item in fleet.instances.get(row.id, ()) if item.node_id != UNPLACED}
    nodes = {
        node_id: _whole(fleet.runs(item) or fleet.files.get(row.id), "remove", "its file is removed from Git")
        for node_id, item in sorted(held.items())
        if item.state is not State.DELETED
    }
    waits = _held(row.site, row, fleet) or _waits(row.site, fleet)
    lost = tuple(_data_lost(row.name, nodes)) if remove_data else ()
    plan = DeploymentPlan(row.site, row, None, row.name, "delete", nodes, {}, (), waits, lost)
    return Plan((plan,))


def _data_lost(name: str, nodes: Mapping[NodeId, Sequence[ComponentStep]]) -> Iterator[str]:
    for node_id, steps in nodes.items():
        for step in steps:
            volumes = f"{volume_prefix(name, step.component, node_id)}*"
            yield f"the data of {step.component} on {node_id} is lost: its volumes {volumes} are removed"


async def _catch_up(git_writer: GitWriter) -> None:
    """A plan is made on the newest commit, like the deploy itself."""
    await git_writer.index.follow_base(await git_writer.git.fetch())


async def _look(
    reader: Reader,
    rows: Sequence[Deployment],
    files: Mapping[DeploymentId, Desired],
    sites: Sequence[SiteName],
    now: datetime,
    *,
    spread: bool = False,
) -> _Fleet:
    nodes: dict[SiteName, list[Node]] = {}
    for node in await reader.nodes(sites[0] if len(sites) == 1 else None):
        nodes.setdefault(node.site, []).append(node)
    instances: dict[DeploymentId, list[Instance]] = {}
    for item in await reader.instances([row.id for row in rows]) if rows else ():
        instances.setdefault(item.deployment_id, []).append(item)
    around = (
        {site: await _around(reader, site) for site in sites} if spread and len(sites) <= SITES_LOOKED_AT_MAX else {}
    )
    holds = by_site(active(await reader.holds(), now))
    past = await _past(reader, rows, instances, files) if len(rows) <= SITES_LOOKED_AT_MAX else {}
    return _Fleet(nodes, instances, around, files, past, holds)


async def _around(reader: Reader, site: SiteName) -> Sequence[Instance]:
    rows = await reader.deployments(DeploymentFilter(site=site))
    return await reader.instances([row.id for row in rows]) if rows else ()


async def _past(
    reader: Reader,
    rows: Sequence[Deployment],
    instances: Mapping[DeploymentId, Sequence[Instance]],
    files: Mapping[DeploymentId, Desired],
) -> dict[tuple[DeploymentId, Digest], Desired]:
    found: dict[tuple[DeploymentId, Digest], Desired] = {}
    for row in rows:
        runs = {item.running_revision for item in instances.get(row.id, ())} - {None}
        if row.id in files and runs <= {files[row.id].revision}:
            continue
        for kept in await reader.revisions(row.id):
            if kept.revision in runs:
                path = deployment_path(row.site, row.id)
                found[row.id, kept.revision] = await anyio.to_thread.run_sync(
                    parse_deployment, kept.content, path, row.site
                )
    return found


def _plan_deploy(merged: MergedRequest, fleet: _Fleet) -> Plan:
    present, targets = merged.present, merged.resolved.targets
    ids = {target.site: present[target.site].id if target.site in present else PREVIEW for target in targets}
    written = write_files(merged, ids, RolloutId(PREVIEW), "")
    name = merged.resolved.name
    return Plan(tuple(_plan_site(name, each, present.get(each.target.site), fleet) for each in written))


def _plan_site(name: str, each: Written, before: Deployment | None, fleet: _Fleet) -> DeploymentPlan:
    site = each.target.site
    after = each.desired or (fleet.files.get(before.id) if before else None)
    assert after is not None, "a file that is as asked for can be read"
    held = {item.node_id: item for item in fleet.instances.get(after.id, ()) if before is not None}
    roster = Roster(fleet.nodes.get(site, ())).reserve(reserved(fleet.around.get(site, ()), {}))
    placed = place_deployment(after, roster, held)
    nodes = {
        node_id: tuple(_steps(after.release.components, fleet.runs(held.get(node_id)), held.get(node_id)))
        for node_id in placed.chosen
    }
    for node_id, item in held.items():
        if node_id != UNPLACED and node_id not in (*nodes, *placed.silent) and item.state is not State.DELETED:
            nodes[node_id] = _elsewhere(node_id, placed, fleet.runs(item) or after)
    action: Literal["create", "update", "unchanged"] = (
        "unchanged" if each.content is None else "create" if before is None else "update"
    )
    return DeploymentPlan(
        site=site,
        before=before,
        after=after,
        name=name,
        action=action,
        nodes=dict(sorted(nodes.items())),
        refused=dict(sorted(placed.refused.items())),
        parameters=tuple(_differences(before.parameters if before else {}, after.parameters)),
        waits=(_held(site, before, fleet) if action != "unchanged" else None)
        or (_waits(site, fleet) if after.device is None else None),
        warnings=_warnings(after, placed),
        kept=each.values.kept,
        dropped=each.values.dropped,
        architectures={
            node.id: node.info.capabilities.architecture for node in fleet.nodes.get(site, ()) if node.id in nodes
        },
    )


def _warnings(after: Desired, placed: Placed) -> tuple[str, ...]:
    """Unexpected outcomes: no node can take the wanted release, and what runs stays."""
    if not placed.stranded:
        return ()
    where = ", ".join(placed.stranded[:3])
    return (f"no node can take {after.app_version}: {placed.explain()}; what runs on {where} stays as it is",)


def _elsewhere(node_id: NodeId, placed: Placed, runs: Desired) -> tuple[ComponentStep, ...]:
    """What happens on a node that is no longer eligible."""
    why = placed.refused.get(node_id, "it is no longer placed here")
    if node_id in placed.stranded:
        return _whole(runs, "keep", f"no node can take its place: {why}")
    if node_id in placed.lingering:
        return _whole(runs, "remove", f"{why} It goes when its successor is healthy.")
    return _whole(runs, "remove", why)


def _whole(release: Desired | None, action: Action, why: str) -> tuple[ComponentStep, ...]:
    """The same step for every component."""
    parts = () if release is None else release.release.components
    return tuple(ComponentStep(part.name, action, why) for part in parts)


def _steps(wanted: Sequence[ComponentSpec], running: Desired | None, held: Instance | None) -> list[ComponentStep]:
    """The step of each component on one node, in the order of the release. Obsolete components go last, but before
    the first new one. `running` is the release that runs there."""
    if held is None or held.running_revision is None or held.state is State.DELETED:
        return [ComponentStep(part.name, "install", "it does not run here yet", after=part) for part in wanted]
    if running is None:
        # Which images it runs is not known then.
        return [ComponentStep(part.name, "replace", "another revision runs here") for part in wanted]
    old = {part.name: part for part in running.release.components}
    steps = []
    for part in wanted:
        before = old.pop(part.name, None)
        if before is None:
            steps.append(ComponentStep(part.name, "install", "it is new in this version", after=part))
        elif before.digest == part.digest:
            steps.append(ComponentStep(part.name, "keep", "unchanged"))
        else:
            steps.append(ComponentStep(part.name, "replace", why_replaced(before, part), before, part))
    new = next((place for place, step in enumerate(steps) if step.action == "install"), len(steps))
    why = "it is not in this version"
    if new < len(steps):
        why += f"; it stops before {steps[new].component} starts, which may need its port"
    return [*steps[:new], *(ComponentStep(name, "remove", why) for name in old), *steps[new:]]


def why_replaced(before: ComponentSpec, after: ComponentSpec) -> str:
    reasons = []
    if before.repository != after.repository:
        reasons.append(f"repository {before.repository} → {after.repository}")
    if before.revision != after.revision:
        is_same = _version_of_files(before.revision) == _version_of_files(after.revision)
        reasons.append("its files changed" if is_same else f"revision {before.revision} → {after.revision}")
    names = sorted(
        name
        for name in before.environment.keys() | after.environment.keys()
        if before.environment.get(name) != after.environment.get(name)
    )
    if names:
        reasons.append(f"environment {', '.join(names)} changed")
    return ", ".join(reasons) or "its description changed"


_FILES: Final = re.compile(r"_[0-9a-f]{12}$")


def _version_of_files(revision: str) -> str:
    """Imported files have a revision of their own version and digest, as in 1.2.0_81de12133dc5; two digests tell a
    person nothing more than that they differ."""
    return _FILES.sub("", revision)


def _differences(
    before: Mapping[str, Value], after: Mapping[str, Value]
) -> list[tuple[str, Value | None, Value | None]]:
    return [
        (name, before.get(name), after.get(name))
        for name in dict.fromkeys([*after, *before])
        if _plain(before.get(name)) != _plain(after.get(name))
    ]


def _plain(value: object) -> object:
    """Makes lists and tuples equal; true is not 1."""
    return (
        (type(value).__name__, value)
        if isinstance(value, bool)
        else list(value)
        if isinstance(value, tuple)
        else value
    )


def _held(site: SiteName, row: Deployment | None, fleet: _Fleet) -> str | None:
    ours = (None, None if row is None else row.id)
    hold = next((hold for hold in fleet.holds.get(site, ()) if hold.deployment_id in ours), None)
    return None if hold is None else f"site {site} is {hold_text(hold)}"


def _waits(site: SiteName, fleet: _Fleet) -> str | None:
    nodes = fleet.nodes.get(site, ())
    if not nodes:
        return f"site {site} has no node yet"
    if all(node.liveness is Liveness.LOST for node in nodes):
        return f"no node of site {site} is connected"
    return None
