"""What must be true in the end, whatever happened: the promises of the design, checked against a model of it.

The model knows the repository and the machines. It does not know how the fleet works, only what it promises: what
runs is what Git says last, or what stands in its way is said; and everybody tells the same story.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeVar

from homeport.core.model.deployment import Desired
from homeport.core.model.event import HistoryEntry
from homeport.core.model.instance import Instance
from homeport.core.secrets import SecretValue, filled, names_in, needed, secret_context
from homeport.node.orders.executor import STARTS_MAX
from homeport.vocabulary import (
    UNPLACED,
    Code,
    DeploymentId,
    Digest,
    EventKind,
    Liveness,
    NodeId,
    PlacementMode,
    SiteName,
    State,
    Trigger,
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

BREAKING = EXCUSES["sick"] | EXCUSES["exits"]
"""Failures of an update that has replaced what ran."""


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
            if _is_unreadable(world, pin.deployment_id):
                continue  # It stays as it is until its file can be read again.
            yield f"{pin.deployment_id[:4]} is still pinned at {role.name}: Git has not heard of it"
    for back in world.backs:
        name = f"/{back.deployment_id}.yaml"
        for commit in world.remote.order[back.begun - 1 :]:
            tree = world.remote.commits[commit].tree
            content = next((each for path, each in tree.items() if path.endswith(name)), None)
            if content is None or world.digest(content) != back.over:
                break
        else:
            yield f"{back.deployment_id[:4]} was to go back, and Git still says {back.over}"


def _is_unreadable(world: World, deployment_id: DeploymentId) -> bool:
    wanted = (world.wanted(site) for site in world.sites)
    return any(deployment_id in each and each[deployment_id] is None for each in wanted)


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
    for node_id in sorted(placed.keys() - members.keys() - {UNPLACED}):
        yield f"{_name((desired.id, node_id))} is {placed.pop(node_id).state}, and its node has left the site"
    wanted = desired.placement.count if mode is PlacementMode.COUNT else 1
    if len(able) < wanted:
        if not members:
            return  # It waits for a node to come.
        if not any(_has_no_node(item) for item in placed.values()):
            yield f"{desired.id[:4]} has no node, and nobody says so"
        placed.pop(UNPLACED, None)
    chosen = able if mode is PlacementMode.EACH else _chosen(placed, able, wanted)
    if mode is not PlacementMode.EACH and len(chosen) < min(wanted, len(able)):
        yield f"{desired.id[:4]} is wanted on {wanted} of {len(able)} nodes and is on {sorted(placed)}"
    staying = _staying(placed, desired, able, 0 if mode is PlacementMode.EACH else wanted)
    for node_id in placed.keys() - set(chosen) - staying:
        yield f"{_name((desired.id, node_id))} is not placed there and is {placed[node_id].state}"
    for node_id in chosen:
        instance = placed.get(node_id)
        if instance is None:
            yield f"{_name((desired.id, node_id))} is missing"
        elif node_id not in able and instance.revision is not None:
            # It stays until something healthy takes its place: whatever release it is, it runs whole.
            name = _name(instance.key)
            yield from _unsettled_containers(world, name, world.known[instance.revision], members[node_id])
        else:
            yield from _unsettled_instance(world, instance, desired, members[node_id])
    yield from _unsettled_stay(world, desired, {node_id: placed[node_id] for node_id in staying}, members)
    for node_id, node in members.items():
        here = any(key[0] == desired.id for key in node.machine.containers)
        if here and node_id not in {*chosen, *staying} and not _may_be_the_last(world, node, placed):
            yield f"{node.name} has an orphan of {desired.id[:4]}, which is placed elsewhere"


def _unsettled_stay(
    world: World, desired: Desired, staying: Mapping[NodeId, Instance], members: Mapping[NodeId, Node]
) -> Iterator[str]:
    """What stays where it may not be runs as it did; or an update that failed left something else, and the instance
    says so: its file forbids to go back, a component that it no longer has could not be removed, or the image to go
    back to is nowhere any more."""
    for node_id, item in staying.items():
        assert item.running_revision is not None, "what does not run does not stay"
        runs, name = world.known[item.running_revision], _name((desired.id, node_id))
        if item.state is State.FAILED and _cannot_be_restored(runs, members[node_id]):
            if not item.unhealthy:
                yield f"{name} cannot be restored, and nobody says so"
        elif item.state is State.FAILED and (
            _has_stuck_removal(desired, members[node_id])
            or any(not each.policy.rollback for each in _releases(world, desired))
        ):
            if item.failure is None:
                yield f"{name} was left as its update failed, and nobody says so"
        else:
            yield from _unsettled_containers(world, name, runs, members[node_id])


def _may_be_the_last(world: World, node: Node, placed: Mapping[NodeId, Instance]) -> bool:
    """What neither its node nor its site remembers stays until it is healthy elsewhere."""
    is_forgotten = node.node_id in world.lost_folders and node.site.site in world.restored
    return is_forgotten and not any(item.state is State.INSTALLED for item in placed.values())


def _has_stuck_removal(desired: Desired, node: Node) -> bool:
    """Whether a component runs whose removal was tried: everything else of the update was done before that."""
    machine = node.machine
    held = {key: each for key, each in machine.containers.items() if key[0] == desired.id}
    return any(machine.attempts[key, f"remove {each.tag}"] > 0 for key, each in held.items())


def _releases(world: World, desired: Desired) -> Iterator[Desired]:
    """All that it ever was: what forbids to go back may be another than what cannot be placed since."""
    return (each for each in world.known.values() if each.id == desired.id)


def _cannot_be_restored(desired: Desired, node: Node) -> bool:
    """Whether a component does not run and its image cannot be pulled any more."""
    held = {key[1]: each.digest for key, each in node.machine.containers.items() if key[0] == desired.id}
    return any(
        part.revision in node.machine.withered and held.get(part.name) != part.digest
        for part in desired.release.components
    )


def _chosen(placed: Mapping[NodeId, Instance], able: Sequence[NodeId], wanted: int) -> list[NodeId]:
    """Where something that is wanted a few times may be: on so many nodes that can take it."""
    here = [node_id for node_id in able if node_id in placed]
    well = [node_id for node_id in here if placed[node_id].state is State.INSTALLED]
    unwell = [node_id for node_id in here if node_id not in well]
    return [*well[:wanted], *unwell[: max(0, wanted - len(well))]]


def _staying(placed: Mapping[NodeId, Instance], desired: Desired, able: Sequence[NodeId], wanted: int) -> set[NodeId]:
    """Where it may not be and stays all the same, for too few are healthy where it may. `wanted` is 0 for each."""
    well = sum(node_id in placed and _is_well(placed[node_id], desired) for node_id in able)
    others = sorted(
        (node_id for node_id, item in placed.items() if node_id not in able and _stays(item)),
        key=lambda node_id: (not _is_well(placed[node_id], desired), node_id),
    )
    return set(others[: wanted - well] if wanted > well else others if not wanted and not well else ())


def _stays(item: Instance) -> bool:
    """A release that runs stays, also one that failed where it is for good: nothing better is to be had."""
    is_over = item.state is State.FAILED and item.next_at is None
    return item.running_revision is not None and (item.state is State.INSTALLED or is_over)


def _is_well(item: Instance, desired: Desired) -> bool:
    return item.state is State.INSTALLED and desired.revision in (item.revision, item.rejected_revision)


def _has_no_node(item: Instance) -> bool:
    """Whether it says itself that no node can take what is wanted."""
    return item.failure is not None and item.failure.code == Code.NO_ELIGIBLE_NODE


def _unsettled_instance(world: World, instance: Instance, desired: Desired, node: Node) -> Iterator[str]:
    """What Git says last runs; or what was good before it, and why; or nothing does, and why."""
    name = _name(instance.key)
    is_back = instance.rejected_revision == desired.revision and instance.revision in world.known
    if instance.revision != desired.revision and not is_back:
        yield f"{name} is at another revision, {instance.state}"
    elif instance.state is State.INSTALLED and instance.revision is not None:
        yield from _unsettled_containers(world, name, world.known[instance.revision], node)
        yield from _unspoken(world, instance, world.known[instance.revision], node)
        if is_back and (instance.failure is None or instance.failure.code not in _excuses(world, desired, node)):
            yield f"{name} was rolled back without a reason: {instance.failure}"
    elif instance.state is not State.FAILED or instance.failure is None:
        yield f"{name} is {instance.state}: {instance.step}"
    elif instance.next_at is not None:
        yield f"{name} is {instance.state} and will be tried again: {instance.failure}"
    elif instance.failure.code == Code.SECRET_MISSING and instance.revision is not None:
        # What was good before may need a secret that nobody keeps for the newest release.
        if not _lacks_secrets(world, world.known[instance.revision]):
            yield f"{name} FAILED for a secret that is there: {instance.failure}"
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
    withered = {part.name for part in desired.release.components if part.revision in node.machine.withered}
    if held.keys() != parts.keys() - (withered - held.keys()):
        yield f"{name} is INSTALLED, and its components are {sorted(held)} instead of {sorted(parts)}"
    for component in held.keys() & parts.keys():
        if held[component].digest != parts[component]:
            if component not in withered:  # Somebody replaced it by hand, and its own image is nowhere any more.
                yield f"{name} is INSTALLED, and its {component} is of another release"
        elif not held[component].is_running:
            yield f"{name} is INSTALLED, and its {component} does not run"


def _unspoken(world: World, instance: Instance, desired: Desired, node: Node) -> Iterator[str]:
    """INSTALLED is true now: what is not healthy any more says so, and what is healthy again does not."""
    machine, name = node.machine, _name(instance.key)
    unwell = [
        part.name
        for part in desired.release.components
        if (desired.id, part.name) in machine.ill
        or (desired.id, part.name) not in machine.containers
        or (part.revision in machine.withered and _is_replaced(world, desired, part.name, node))
    ]
    if unwell and instance.unhealthy is None:
        yield f"{name} is INSTALLED and not healthy ({', '.join(unwell)}), and nobody says so"
    if not unwell and instance.unhealthy is not None:
        yield f"{name} is said to be unhealthy and is not: {instance.unhealthy.why}"


def _is_replaced(world: World, desired: Desired, component: str, node: Node) -> bool:
    """Whether a container of another specification stands in its place."""
    parts = filled(desired.release, _secret_values(world, desired.site)).components
    wanted = next(part.digest for part in parts if part.name == component)
    return node.machine.containers[desired.id, component].digest != wanted


def _secret_values(world: World, site: SiteName) -> dict[str, SecretValue]:
    """As central has them."""
    rows = [each for key, each in world.central.disk.tables.secrets.items() if key[0] == site]
    opened = {each.name: PlainVault().open(each.ciphertext, context=secret_context(site, each.name)) for each in rows}
    return {each.name: SecretValue(each.version, opened[each.name].decode()) for each in rows}


def _excuses(world: World, desired: Desired, node: Node) -> set[str]:
    kinds = {behaviour(part.revision, node.machine.place)[0] for part in desired.release.components}
    found = {str(code) for kind in kinds for code in EXCUSES.get(kind, ())} | {*map(str, node.machine.misfortunes)}
    pulls = [behaviour(part.revision, node.machine.place) for part in desired.release.components]
    failing = sum(count for kind, count in pulls if kind == "pulls")
    if failing > (0 if node.machine.misfortunes or _was_lost(desired, node) else desired.policy.retries_max):
        found.add(str(Code.IMAGE_PULL_FAILED))  # Attempts that met with another misfortune are spent as well.
    stuck = _removals_that_fail(world, desired, node)
    if failing + stuck > desired.policy.retries_max:
        found |= {str(Code.REMOVE_FAILED)} if stuck else set()
        found |= {str(Code.IMAGE_PULL_FAILED)} if failing else set()
    if _lacks_secrets(world, desired):
        found.add(str(Code.SECRET_MISSING))
    if node.lives > STARTS_MAX:
        found.add(str(Code.NODE_CRASHED))  # It may have been killed so often in one order.
    return found


def _removals_that_fail(world: World, desired: Desired, node: Node) -> int:
    """How often an update may fail to remove components of its older releases. Attempts are spent on that."""
    older = [each.release.components for each in _releases(world, desired)]
    tags = {(part.name, part.revision) for components in older for part in components}
    kinds = [behaviour(tag, node.machine.place) for _, tag in tags]
    return sum(count for kind, count in kinds if kind == "sticky")


def _was_lost(desired: Desired, node: Node) -> bool:
    """Whether an attempt at the deployment ended because its node was lost."""
    steps = (each for each in node.site.disk.tables.history if each.deployment_id == desired.id)
    ended = (each.failure for each in steps if each.node_id == node.node_id and each.failure is not None)
    return any(failure.code == Code.NODE_OFFLINE for failure in ended)


def _lacks_secrets(world: World, desired: Desired) -> bool:
    return not needed(desired.release) <= _secret_values(world, desired.site).keys()


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
    ours, theirs = _rows(here, site, unread), _rows(there, site, unread)
    never_read = unread - ours.keys()  # Central may have looked while the file could be read, and its site not.
    yield from _different("deployments", ours, {key: row for key, row in theirs.items() if key not in never_read})
    yield from _different(
        "instances",
        {key: _comparable(each) for key, each in here.instances.items()},
        {
            key: _comparable(each)
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


def _comparable(item: Instance) -> tuple[object, ...]:
    order = item.incarnation, item.generation
    return item.state, *order, item.revision, item.running_revision, item.failure, item.unhealthy is not None


# --- what must never have happened: asked once, in the end --------------------------------------------------------


def broken(world: World) -> list[str]:
    found = [*world.violations]
    for process in world.processes:
        found += process.screams
    for site in world.sites.values():
        found += _refused(site.name, site.disk.tables)
        if site.site in world.restored:
            continue  # Its own history does not tell of the time that it has forgotten.
        if not world.central_forgot:
            found += _retold(world, site)
        found += _went_back(world, site)
        found += _broke_before_made(world, site)
    found += [each for each in _refused("central", world.central.disk.tables) if not _is_of_a_copy(world, each)]
    return found


def _is_of_a_copy(world: World, problem: str) -> bool:
    """Whether a site is said to report what is another's, and both have a file of it."""
    return "it belongs to site" in problem and any(key in problem for key in world.copied)


def _refused(name: str, tables: Tables) -> Iterator[str]:
    for event in tables.events:
        if event.event.kind is EventKind.DEPLOYMENT_REFUSED and "why" in event.event.data:
            yield f"{name} refused: {event.event.message}"


def _retold(world: World, site: Site) -> Iterator[str]:
    """History arrives in order, once."""
    ours = _histories(site.disk.tables)
    theirs = _histories(world.central.disk.tables)
    for deployment_id, entries in ours.items():
        if deployment_id in world.moved:
            yield from _retold_of_moved(world, site, entries, theirs.get(deployment_id, []))
        elif theirs.get(deployment_id, []) != entries:
            told = theirs.get(deployment_id, [])
            at = next((i for i, (a, b) in enumerate(zip(entries, told, strict=False)) if a != b), None)
            yield (
                f"the history of {deployment_id[:4]} has {len(entries)} lines at {site.name}"
                f" and {len(told)} at central, and differs at {at}"
            )


def _retold_of_moved(
    world: World, site: Site, ours: Sequence[HistoryEntry], theirs: Sequence[HistoryEntry]
) -> Iterator[str]:
    """Central passes over what a site still does with a deployment that it no longer has; nothing else is missing,
    and nothing is doubled or in another order."""
    nodes = {node.node_id for node in world.nodes.values() if node.site is site}
    here = [each for each in ours if each.node_id in nodes]
    # What central asked a site to restate has a line for what it had missed until then.
    told = [each for each in theirs if each.node_id in nodes and each.trigger is not Trigger.RESTATED]
    rest, key = iter(here), ours[0].deployment_id
    if not all(any(_tells(each, mine) for mine in rest) for each in told):
        yield f"the history of {key[:4]}, which was moved, has lines at central that differ from those at {site.name}"
    if site.site not in world.moved[key] and told != here:
        yield f"the history of {key[:4]}, moved to {site.name}, has {len(told)} of {len(here)} lines at central"


def _tells(line: HistoryEntry, own: HistoryEntry) -> bool:
    """Central begins anew with what comes back to a site, so it may not know what was before the first line."""
    is_begun = line.before is State.PENDING
    return line == own or (is_begun and replace(line, before=own.before, verdict=own.verdict) == own)


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
        left: set[NodeId] = set()
        renewed = _renewed(entries)
        for number, entry in enumerate(entries):
            node_id, revision, start = entry.node_id, entry.revision, position.get(entry.node_id, 0)
            if number in renewed and revision is not None:
                back[node_id] = revision
            if entry.trigger is Trigger.UNWANTED:
                left.add(node_id)
            if entry.trigger is Trigger.ROLLED_BACK and revision is not None and back.get(node_id) != revision:
                # What was rolled back comes again only when Git has had another one in between. What somebody
                # had gone back to by hand was none of Git's.
                start = position[node_id] = start + (node_id not in back)
                back[node_id] = revision
            if revision is None or revision == back.get(node_id):
                continue
            if (entry.trigger is Trigger.SCHEDULED or node_id in left) and start:
                start -= (
                    order[start - 1] == revision
                )  # A new life on this node judges anew, as does one that was to end.
            if (deployment_id, revision) in world.pinned:  # whether Git has it by now or not
                position[node_id] = start if node_id in back else start + 1
                back[node_id] = revision
                continue
            was_sent_back = (deployment_id, back.get(node_id)) in world.pinned
            if (
                was_sent_back
                and revision not in order[start:]
                and _was_put_back(world, site, deployment_id, revision)
            ):
                back[node_id] = revision
                continue
            if revision not in order[start:]:
                yield f"{deployment_id[:4]} on {node_id} went back to {revision} by {entry.trigger}"
                break
            position[node_id] = order.index(revision, start)
            back.pop(node_id, None)
            left.discard(node_id)


def _was_put_back(world: World, site: Site, deployment_id: DeploymentId, revision: Digest) -> bool:
    """Whether its file came back with this content after it had been gone: any newer commit of a file ends what
    somebody sent back by hand, also one that says the same again."""
    path = f"deployments/{site.site}/{deployment_id}.yaml"
    files = [world.remote.commits[commit].tree.get(path) for commit in world.remote.order]
    first = next((number for number, content in enumerate(files) if content is not None), 0)
    pairs = zip(files[first:], files[first + 1 :], strict=False)
    return any(before is None and after and world.digest(after) == revision for before, after in pairs)


def _renewed(entries: Sequence[HistoryEntry]) -> set[int]:
    """Where what ran was applied again with a newer secret, after no node could take what was wanted instead."""
    found: set[int] = set()
    at: dict[NodeId, Digest | None] = {}
    runs: dict[NodeId, Digest | None] = {}
    refused: set[NodeId] = set()
    for number, entry in enumerate(entries):
        node_id = entry.node_id
        at[node_id] = entry.revision or at.get(node_id)
        if entry.trigger is Trigger.SUPERSEDED_UPDATE and node_id in refused and at[node_id] == runs.get(node_id):
            found.add(number)
        if entry.trigger is Trigger.HEALTHY:
            runs[node_id] = at[node_id]
        is_refusal = entry.failure is not None and entry.failure.code == Code.NO_ELIGIBLE_NODE
        (refused.add if is_refusal else refused.discard)(node_id)
    return found


def _broke_before_made(world: World, site: Site) -> Iterator[str]:
    """While its file is there, what runs on a node is taken away only when it is healthy on another, or when as many
    as are wanted go on running without it: fewer may be wanted while no node can take what is wanted."""
    for deployment_id, entries in _histories(site.disk.tables).items():
        states: dict[NodeId, State] = {}
        runs: dict[NodeId, bool] = {}
        for entry in entries:
            node_id = entry.node_id
            if entry.trigger is Trigger.UNWANTED and node_id in runs and _was_the_last(states, node_id, entry):
                enough = world.enough.get(entry, 0)
                # One that an update has broken takes the place of one that is broken as well.
                others = [is_whole for other, is_whole in runs.items() if other != node_id]
                if not enough or sum(is_whole or not runs[node_id] for is_whole in others) < enough:
                    yield f"{deployment_id[:4]} was taken from {node_id} before it ran elsewhere: {entry.reason}"
            states[node_id] = entry.after
            if entry.trigger is Trigger.HEALTHY and entry.after is State.INSTALLED:
                runs[node_id] = True
            elif entry.after in (State.DELETING, State.DELETED):
                runs.pop(node_id, None)
            elif node_id in runs and entry.failure is not None and entry.failure.code in BREAKING:
                runs[node_id] = False


def _was_the_last(states: Mapping[NodeId, State], node_id: NodeId, entry: HistoryEntry) -> bool:
    if entry.reason in ("its file was removed from Git", "its node was removed from the site"):
        return False
    return not any(state is State.INSTALLED for other, state in states.items() if other != node_id)


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
    """The containers of everything that is INSTALLED and healthy."""
    found = {}
    for node in world.nodes.values():
        for key, held in node.machine.containers.items():
            instance = node.site.disk.tables.instances.get((key[0], node.node_id))
            is_restarted = key in node.machine.ill
            if instance is not None and instance.state is State.INSTALLED and not is_restarted:
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
