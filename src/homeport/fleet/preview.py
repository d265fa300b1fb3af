"""What a deploy or a delete would do, at which site and node, to which component, and why. Changes nothing.

Judged from central's mirror of the nodes, with the same placement that the site will use: a site that has news
central has not heard may still decide otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import anyio.to_thread

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.model.app import Value
from homeport.core.model.deployment import ComponentSpec, Desired, Hold
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import place
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.holds import active, by_site, hold_text
from homeport.errors import PermanentError
from homeport.fleet.deploy import Desk, Written, check_deletable, write_files
from homeport.fleet.overview import find_deployment
from homeport.fleet.resolve import DeployRequest, Resolved, present_by_site, resolve
from homeport.fleet.snapshot import FILE_SIZE_MAX, site_folder
from homeport.ports import DeploymentFilter, Reader
from homeport.vocabulary import UNPLACED, DeploymentId, Liveness, NodeId, PlacementMode, RolloutId, SiteName, State

Action = Literal["install", "replace", "keep", "remove"]
PREVIEW = DeploymentId("00000000-0000-4000-8000-000000000000")
"""Stands for the id that a new deployment would get."""
SITES_LOOKED_AT_MAX = 50
"""How many sites are looked at one by one; with more, what costs a query each is left out."""


@dataclass(frozen=True, slots=True)
class ComponentStep:
    component: str
    action: Action
    why: str


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
    """What would fail, or be different from what one might expect."""


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
    """What central knows of the sites concerned."""

    nodes: Mapping[SiteName, Sequence[Node]]
    instances: Mapping[DeploymentId, Sequence[Instance]]
    around: Mapping[SiteName, Sequence[Instance]]
    """All that runs at a site, where the number of instances decides who gets the next one."""
    running: Mapping[DeploymentId, Desired]
    """What the file in Git says now, where it can be read."""
    holds: Mapping[SiteName, Sequence[Hold]]
    """Those that last."""


async def preview_deploy(request: DeployRequest, desk: Desk, now: datetime) -> Plan:
    await _catch_up(desk)
    async with desk.store.read() as reader:
        resolved = await resolve(reader, request)
        present = await present_by_site(reader, resolved)
        sites = [target.site for target in resolved.targets]
        spread = resolved.placement.mode is not PlacementMode.EACH
        fleet = await _look(reader, desk, list(present.values()), sites, now, spread=spread)
    return await anyio.to_thread.run_sync(_plan_deploy, resolved, present, fleet)


async def preview_delete(text: str, desk: Desk, now: datetime) -> Plan:
    await _catch_up(desk)
    async with desk.store.read() as reader:
        row = await find_deployment(reader, text)
        check_deletable(row)
        fleet = await _look(reader, desk, [row], [row.site], now)
    held = {item.node_id: item for item in fleet.instances.get(row.id, ()) if item.node_id != UNPLACED}
    running = fleet.running.get(row.id)
    names = [component.name for component in running.release.components] if running else []
    nodes = {
        node_id: tuple(ComponentStep(name, "remove", "its file is removed from Git") for name in names)
        for node_id, item in sorted(held.items())
        if item.state is not State.DELETED
    }
    waits = _held(row.site, row, fleet) or _waits(row.site, fleet)
    plan = DeploymentPlan(row.site, row, None, row.name, "delete", nodes, {}, (), waits)
    return Plan((plan,))


async def _catch_up(desk: Desk) -> None:
    """A plan is made on the newest commit, like the deploy it foretells."""
    commit = await desk.git.fetch()
    if commit is not None:
        await desk.index.follow(commit)


async def _look(
    reader: Reader,
    desk: Desk,
    rows: Sequence[Deployment],
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
    return _Fleet(nodes, instances, around, await _running(desk, rows), holds)


async def _around(reader: Reader, site: SiteName) -> Sequence[Instance]:
    rows = await reader.deployments(DeploymentFilter(site=site))
    return await reader.instances([row.id for row in rows]) if rows else ()


async def _running(desk: Desk, rows: Sequence[Deployment]) -> dict[DeploymentId, Desired]:
    commit = await desk.index.indexed()
    if commit is None or not rows:
        return {}
    wanted = {deployment_path(row.site, row.id): row for row in rows}
    folders = sorted({site_folder(row.site) for row in rows}) if len(rows) <= SITES_LOOKED_AT_MAX else ["deployments"]
    found: dict[DeploymentId, Desired] = {}
    for folder in folders:
        for file in await desk.git.files(commit, folder, size_max=FILE_SIZE_MAX):
            row = wanted.get(file.path)
            if row is None:
                continue
            try:
                found[row.id] = await anyio.to_thread.run_sync(parse_deployment, file.content, file.path, row.site)
            except PermanentError:
                continue  # what a broken file meant to say is not known; the plan then names no component to keep
    return found


def _plan_deploy(resolved: Resolved, present: Mapping[SiteName, Deployment], fleet: _Fleet) -> Plan:
    ids = {target.site: present[target.site].id if target.site in present else PREVIEW for target in resolved.targets}
    written = write_files(resolved, ids, dict(present), RolloutId(PREVIEW))
    return Plan(tuple(_plan_site(resolved, each, present.get(each.target.site), fleet) for each in written))


def _plan_site(resolved: Resolved, each: Written, before: Deployment | None, fleet: _Fleet) -> DeploymentPlan:
    site = each.target.site
    running = fleet.running.get(before.id) if before else None
    after = each.desired or running
    assert after is not None, "a file that is as asked for can be read"
    held = {item.node_id: item for item in fleet.instances.get(after.id, ()) if before is not None}
    roster = Roster(fleet.nodes.get(site, ())).carry(fleet.around.get(site, ()), {})
    placed = place(after, roster, held)
    nodes = {
        node_id: tuple(_steps(after.release.components, running, held.get(node_id))) for node_id in placed.chosen
    }
    for node_id, item in held.items():
        leaves = node_id != UNPLACED and node_id not in nodes and node_id not in placed.silent
        if leaves and item.state is not State.DELETED and running is not None:
            why = placed.refused.get(node_id, "it is no longer placed here")
            nodes[node_id] = tuple(ComponentStep(part.name, "remove", why) for part in running.release.components)
    action: Literal["create", "update", "unchanged"] = (
        "unchanged" if each.content is None else "create" if before is None else "update"
    )
    return DeploymentPlan(
        site=site,
        before=before,
        after=after,
        name=resolved.name,
        action=action,
        nodes=dict(sorted(nodes.items())),
        refused=dict(sorted(placed.refused.items())),
        parameters=tuple(_differences(before.parameters if before else {}, after.parameters)),
        waits=(_held(site, before, fleet) if action != "unchanged" else None) or _waits(site, fleet),
    )


def _steps(wanted: Sequence[ComponentSpec], running: Desired | None, held: Instance | None) -> list[ComponentStep]:
    """What happens to each component on one node, in the order of the release; leftovers go last."""
    runs = held is not None and held.running_revision is not None and held.state is not State.DELETED
    if not runs or running is None:
        return [ComponentStep(part.name, "install", "it does not run here yet") for part in wanted]
    assert held is not None
    if held.running_revision != running.revision:
        return [ComponentStep(part.name, "replace", "another revision runs here") for part in wanted]
    old = {part.name: part for part in running.release.components}
    steps = []
    for part in wanted:
        before = old.pop(part.name, None)
        if before is None:
            steps.append(ComponentStep(part.name, "install", "it is new in this version"))
        elif before.digest == part.digest:
            steps.append(ComponentStep(part.name, "keep", "unchanged"))
        else:
            steps.append(ComponentStep(part.name, "replace", _why_replaced(before, part)))
    return steps + [ComponentStep(name, "remove", "it is not in this version") for name in old]


def _why_replaced(before: ComponentSpec, after: ComponentSpec) -> str:
    reasons = []
    if before.repository != after.repository:
        reasons.append(f"repository {before.repository} → {after.repository}")
    if before.revision != after.revision:
        reasons.append(f"revision {before.revision} → {after.revision}")
    names = sorted(
        name
        for name in before.environment.keys() | after.environment.keys()
        if before.environment.get(name) != after.environment.get(name)
    )
    if names:
        reasons.append(f"environment {', '.join(names)} changed")
    return ", ".join(reasons) or "its description changed"


def _differences(
    before: Mapping[str, Value], after: Mapping[str, Value]
) -> list[tuple[str, Value | None, Value | None]]:
    return [
        (name, before.get(name), after.get(name))
        for name in dict.fromkeys([*after, *before])
        if _plain(before.get(name)) != _plain(after.get(name))
    ]


def _plain(value: object) -> object:
    """Lists and tuples alike; true is not 1."""
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
