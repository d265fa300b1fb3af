"""What must be true in the end, whatever happened: the promises of the design, checked against a model of it.

The model knows the repository and the machines. It does not know how the fleet works, only what it promises: what
runs is what Git says last, or what stands in its way is said; and everybody tells the same story.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeVar

from homeport.core.model.deployment import Desired
from homeport.core.model.event import HistoryEntry
from homeport.core.model.instance import Instance
from homeport.core.secrets import SecretValue, filled, names_in, needed, secret_context
from homeport.vocabulary import (
    UNPLACED,
    Code,
    DeploymentId,
    Digest,
    EventKind,
    Happening,
    Liveness,
    NodeId,
    PlacementMode,
    SiteName,
    State,
)
from tests.simulation.machine import behaviour
from tests.simulation.roles import Node, PlainVault, Site
from tests.simulation.store import Tables
from tests.simulation.world import UNCERTAIN, World

K = TypeVar("K")

EXCUSES = {
    "sick": {Code.HEALTH_CHECK_FAILED, Code.TIMEOUT},
    "exits": {Code.EXITED},
    "gone": {Code.IMAGE_PULL_FAILED},
}
"""Which failures each kind of image explains. What fails only for a while is none of them: it is tried again."""


# --- what must become true: asked again and again until it is -----------------------------------------------------


def unsettled(world: World) -> list[str]:
    """What is not yet as it must be."""
    found = [f"{process.name} is down" for process in world.processes if process.life is None]
    for site in world.sites.values():
        found += _unsettled_site(world, site)
        found += _untold(world, site)
    if world.central.disk.tables.values.get("indexed_commit") != world.remote.head:
        found.append("central does not show the newest commit")
    found += _not_gone_back(world)
    found += _forgotten_secrets(world)
    return found


def _forgotten_secrets(world: World) -> Iterator[str]:
    """Central has what it was told, and each site has what central has."""
    there = world.central.disk.tables.secrets
    for key, value in world.secrets.items():
        kept = None if key not in there else PlainVault().open(there[key].ciphertext, context=secret_context(*key))
        if value != UNCERTAIN and value != (kept if kept is None else kept.decode()):
            yield f"central was told that the secret {key} is {value}, and has {kept!r}"
    for site in world.sites.values():
        own = {key: each.version for key, each in there.items() if key[0] == site.site}
        has = {key: each.version for key, each in site.disk.tables.secrets.items()}
        if own != has:
            yield f"{site.name} has the secrets {has}, not {own}"


def _not_gone_back(world: World) -> Iterator[str]:
    """What somebody was told to go back from is no longer what Git says, or Git has had something newer since."""
    for role in (world.central, *world.sites.values()):
        for pin in role.disk.tables.pins.values():
            if pin.revision == pin.over:
                continue  # Somebody went back and forth again, to what Git says.
            yield f"{pin.deployment_id[:4]} is still pinned at {role.name}: Git has not heard of it"
    for deployment_id, over, begun in world.backs:
        name = f"/{deployment_id}.yaml"
        for commit in world.remote.order[begun - 1 :]:
            tree = world.remote.commits[commit].tree
            content = next((each for path, each in tree.items() if path.endswith(name)), None)
            if content is None or world.digest(content) != over:
                break
        else:
            yield f"{deployment_id[:4]} was to go back, and Git still says {over}"


def _unsettled_site(world: World, site: Site) -> Iterator[str]:
    tables = site.disk.tables
    known = {node_id: node for (_, node_id), node in tables.nodes.items()}
    expected = {node.node_id for node in world.nodes.values() if node.site is site and node.is_member}
    # One that did not hear the farewell comes back by itself; what promises the contrary is its identity.
    if not expected <= known.keys() <= expected | world.ever_left:
        yield f"{site.name} knows the nodes {sorted(known)}, not {sorted(expected)}"
        return
    members = {node_id: world.nodes[node_id] for node_id in known}
    for node_id, row in known.items():
        promised = world.drains.get(node_id)
        if promised is not None and promised != (row.drain is not None):
            yield f"{node_id} is {'not ' if promised else ''}drained, and somebody was told otherwise"
    yield from (f"{node_id} is {node.liveness}" for node_id, node in known.items() if node.liveness != Liveness.LIVE)
    if tables.values.get("applied_commit") != world.remote.head:
        yield f"{site.name} has not applied the newest commit"
        return
    wanted = world.wanted(site.site)
    for desired in wanted.values():
        if desired is not None:
            yield from _unsettled_deployment(world, tables, desired, members)
    for key, instance in tables.instances.items():
        if key[0] not in wanted:
            yield f"{_name(key)} is not wanted and is {instance.state}"
    for node in members.values():
        for deployment_id, component in node.machine.containers:
            if deployment_id not in wanted:
                yield f"{node.name} has an orphan: {component} of {deployment_id[:4]}"


def _unsettled_deployment(
    world: World, tables: Tables, desired: Desired, members: dict[NodeId, Node]
) -> Iterator[str]:
    asked, mode = desired.placement.nodes, desired.placement.mode
    drained = {key[1] for key, node in tables.nodes.items() if node.drain is not None}
    able = [node_id for node_id in members if (not asked or node_id in asked) and node_id not in drained]
    placed = {key[1]: item for key, item in tables.instances.items() if key[0] == desired.id}
    wanted = desired.placement.count if mode is PlacementMode.COUNT else 1
    if len(able) < wanted:
        unplaced = placed.pop(UNPLACED, None)
        if not members:
            return  # It waits for a node to come.
        if unplaced is None or unplaced.failure is None or unplaced.failure.code != Code.NO_ELIGIBLE_NODE:
            yield f"{desired.id[:4]} has no node, and nobody says so"
    chosen = able if mode is PlacementMode.EACH else _chosen(placed, able, wanted)
    if mode is not PlacementMode.EACH and len(chosen) < min(wanted, len(able)):
        yield f"{desired.id[:4]} is wanted on {wanted} of {len(able)} nodes and is on {sorted(placed)}"
    for node_id in placed.keys() - set(chosen):
        yield f"{_name((desired.id, node_id))} is not placed there and is {placed[node_id].state}"
    for node_id in chosen:
        instance = placed.get(node_id)
        if instance is None:
            yield f"{_name((desired.id, node_id))} is missing"
        else:
            yield from _unsettled_instance(world, instance, desired, members[node_id])
    for node_id, node in members.items():
        if node_id not in chosen and any(key[0] == desired.id for key in node.machine.containers):
            yield f"{node.name} has an orphan of {desired.id[:4]}, which is placed elsewhere"


def _chosen(placed: Mapping[NodeId, Instance], able: Sequence[NodeId], wanted: int) -> list[NodeId]:
    """Where something that is wanted a few times may be: on so many nodes that can take it. What it moves away from
    stays for as long as there is nothing healthy in its place."""
    here = [node_id for node_id in able if node_id in placed]
    well = [node_id for node_id in here if placed[node_id].state is State.INSTALLED]
    lacking = min(wanted, len(able)) - len(well)
    others = [node_id for node_id in placed if node_id not in here and placed[node_id].state is State.INSTALLED]
    unwell = [node_id for node_id in here if node_id not in well]
    return [*well[:wanted], *unwell[: max(0, wanted - len(well))], *others[: max(0, lacking)]]


def _unsettled_instance(world: World, instance: Instance, desired: Desired, node: Node) -> Iterator[str]:
    """What Git says last runs; or what was good before it, and why; or nothing does, and why."""
    name = _name(instance.key)
    is_back = instance.rejected_revision == desired.revision and instance.revision in world.known
    if instance.revision != desired.revision and not is_back:
        yield f"{name} is at another revision, {instance.state}"
    elif instance.state is State.INSTALLED and instance.revision is not None:
        yield from _unsettled_containers(world, name, world.known[instance.revision], node)
        if is_back and (instance.failure is None or instance.failure.code not in _excuses(world, desired, node)):
            yield f"{name} was rolled back without a reason: {instance.failure}"
    elif instance.state is not State.FAILED or instance.failure is None:
        yield f"{name} is {instance.state}: {instance.step}"
    elif instance.next_at is not None:
        yield f"{name} is {instance.state} and will be tried again: {instance.failure}"
    elif instance.failure.code not in _excuses(world, desired, node):
        yield f"{name} FAILED without a reason: {instance.failure}"


def _unsettled_containers(world: World, name: str, desired: Desired, node: Node) -> Iterator[str]:
    """Exactly one release runs, whole, with the newest value of each secret, and nothing else."""
    held = {key[1]: each for key, each in node.machine.containers.items() if key[0] == desired.id}
    values = _secret_values(world, desired.site)
    if not needed(desired.release) <= values.keys():
        return  # What runs with a secret that is gone since stays as it is.
    parts = {part.name: part.digest for part in filled(desired.release, values).components}
    for part in desired.release.components:
        told = {each: values[each].value for each in names_in(part.environment.values())}
        if part.name in held and told != held[part.name].secrets:
            yield f"{name} is INSTALLED, and its {part.name} has the secrets {held[part.name].secrets}, not {told}"
    if held.keys() != parts.keys():
        yield f"{name} is INSTALLED, and its components are {sorted(held)} instead of {sorted(parts)}"
    for component in held.keys() & parts.keys():
        if held[component].digest != parts[component]:
            yield f"{name} is INSTALLED, and its {component} is of another release"
        elif not held[component].is_running:
            yield f"{name} is INSTALLED, and its {component} does not run"


def _secret_values(world: World, site: SiteName) -> dict[str, SecretValue]:
    """As central has them."""
    rows = [each for key, each in world.central.disk.tables.secrets.items() if key[0] == site]
    opened = {each.name: PlainVault().open(each.ciphertext, context=secret_context(site, each.name)) for each in rows}
    return {each.name: SecretValue(each.version, opened[each.name].decode()) for each in rows}


def _excuses(world: World, desired: Desired, node: Node) -> set[str]:
    kinds = {behaviour(part.revision, node.machine.place)[0] for part in desired.release.components}
    found = {str(code) for kind in kinds for code in EXCUSES.get(kind, ())} | {*map(str, node.machine.misfortunes)}
    pulls = [behaviour(part.revision, node.machine.place) for part in desired.release.components]
    if sum(count for kind, count in pulls if kind == "pulls") > desired.policy.retries_max:
        found.add(str(Code.IMAGE_PULL_FAILED))
    if not needed(desired.release) <= _secret_values(world, desired.site).keys():
        found.add(str(Code.SECRET_MISSING))
    return found


def _untold(world: World, site: Site) -> Iterator[str]:
    """What central does not show as the site knows it."""
    here, there = site.disk.tables, world.central.disk.tables
    if here.outbox:
        yield f"{site.name} has {len(here.outbox)} reports that central has not taken"
        return
    own = {row.id for row in there.deployments.values() if row.site == site.site}
    yield from _different(
        "nodes",
        {key[1]: node.liveness for key, node in here.nodes.items()},
        {key[1]: node.liveness for key, node in there.nodes.items() if key[0] == site.site},
    )
    unread = {deployment_id for deployment_id, desired in world.wanted(site.site).items() if desired is None}
    yield from _different("deployments", _rows(here, site, unread), _rows(there, site, unread))
    yield from _different(
        "instances",
        {key: _essence(each) for key, each in here.instances.items()},
        {
            key: _essence(each)
            for key, each in there.instances.items()
            if key[0] in own and each.state is not State.DELETED
        },
    )


def _different(what: str, here: Mapping[K, object], central: Mapping[K, object]) -> Iterator[str]:
    for key in here.keys() | central.keys():
        if here.get(key) != central.get(key):
            yield f"{what}: {key} is {here.get(key)} at its site, but {central.get(key)} at central"


def _rows(tables: Tables, site: Site, unread: Set[DeploymentId]) -> dict[DeploymentId, tuple[object, ...]]:
    """Of a file that cannot be read, each shows the last content that it could read itself: not always the same."""
    return {
        row.id: (row.state, None if row.id in unread else row.revision, row.wanted)
        for row in tables.deployments.values()
        if row.site == site.site and row.archived_at is None
    }


def _essence(item: Instance) -> tuple[object, ...]:
    return item.state, item.incarnation, item.generation, item.revision, item.running_revision, item.failure


# --- what must never have happened: asked once, in the end --------------------------------------------------------


def broken(world: World) -> list[str]:
    found = [*world.violations]
    for process in world.processes:
        found += process.screams
    for site in world.sites.values():
        found += _refused(site.name, site.disk.tables)
        found += _retold(world, site)
        found += _went_back(world, site)
    found += _refused("central", world.central.disk.tables)
    return found


def _refused(name: str, tables: Tables) -> Iterator[str]:
    for event in tables.events:
        if event.event.kind is EventKind.DEPLOYMENT_REFUSED and "why" in event.event.data:
            yield f"{name} refused: {event.event.message}"


def _retold(world: World, site: Site) -> Iterator[str]:
    """History arrives in order, once."""
    ours = _histories(site.disk.tables)
    theirs = _histories(world.central.disk.tables)
    for deployment_id, entries in ours.items():
        if theirs.get(deployment_id, []) != entries:
            told = theirs.get(deployment_id, [])
            at = next((i for i, (a, b) in enumerate(zip(entries, told, strict=False)) if a != b), None)
            yield (
                f"the history of {deployment_id[:4]} has {len(entries)} lines at {site.name}"
                f" and {len(told)} at central, and differs at {at}"
            )


def _histories(tables: Tables) -> dict[DeploymentId, list[HistoryEntry]]:
    found: dict[DeploymentId, list[HistoryEntry]] = {}
    for entry in tables.history:
        found.setdefault(entry.deployment_id, []).append(entry)
    return found


def _went_back(world: World, site: Site) -> Iterator[str]:
    """Each instance follows the revisions in the order of the commits; only a rollback goes back."""
    for deployment_id, entries in _histories(site.disk.tables).items():
        order = _revisions(world, site, deployment_id)
        position: dict[NodeId, int] = {}
        back: dict[NodeId, Digest] = {}
        for entry in entries:
            node_id, revision, start = entry.node_id, entry.revision, position.get(entry.node_id, 0)
            if entry.happening is Happening.ROLLED_BACK and revision is not None and back.get(node_id) != revision:
                back[node_id] = revision
                # What was rolled back comes again only when Git has had another one in between.
                position[node_id] = start = start + 1
            if revision is None or revision == back.get(node_id):
                continue
            if entry.happening is Happening.SCHEDULED and start:
                start -= order[start - 1] == revision  # A new life on this node judges anew.
            if (deployment_id, revision) in world.pinned:  # whether Git has it by now or not
                position[node_id] = start if node_id in back else start + 1
                back[node_id] = revision
                continue
            if revision not in order[start:]:
                yield f"{deployment_id[:4]} on {node_id} went back to {revision} by {entry.happening}"
                break
            position[node_id] = order.index(revision, start)
            back.pop(node_id, None)


def _revisions(world: World, site: Site, deployment_id: DeploymentId) -> list[Digest]:
    order: list[Digest] = []
    path = f"deployments/{site.site}/{deployment_id}.yaml"
    for commit in world.remote.order:
        content = world.remote.commits[commit].tree.get(path)
        if content is not None:
            revision = world.digest(content)
            if not order or order[-1] != revision:
                order.append(revision)
    return order


# --- what a restart must leave alone ------------------------------------------------------------------------------


def at_rest(world: World) -> dict[tuple[str, DeploymentId, str], str]:
    """The containers of everything that is INSTALLED."""
    found = {}
    for node in world.nodes.values():
        for key, held in node.machine.containers.items():
            instance = node.site.disk.tables.instances.get((key[0], node.node_id))
            if instance is not None and instance.state is State.INSTALLED:
                found[node.name, key[0], key[1]] = held.id
    return found


def disturbed(
    before: dict[tuple[str, DeploymentId, str], str], after: dict[tuple[str, DeploymentId, str], str]
) -> list[str]:
    return [
        f"a restart made {component} of {deployment_id[:4]} on {node} anew: {held} became {after.get(key)}"
        for key, held in before.items()
        if after.get(key) != held
        for node, deployment_id, component in (key,)
    ]


def _name(key: tuple[DeploymentId, NodeId]) -> str:
    return f"{key[0][:4]} on {key[1] or 'no node'}"
