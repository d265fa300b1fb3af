"""Why things are as they are: the chain of decisions from a commit to a container, each with its reason.

Composed from records alone, with the same functions that decide, so that what is told is what is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from homeport.core.lifecycle.deployment import IN_FLIGHT
from homeport.core.model.deployment import Desired, Hold, Pin
from homeport.core.model.event import Deployment, Site
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import Placed, place
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.plan import short
from homeport.core.secrets import missing
from homeport.vocabulary import UNPLACED, Code, DeploymentId, Liveness, NodeId, PlacementMode, State


@dataclass(frozen=True, slots=True)
class Decision:
    """One link of the chain: what was decided, about what, and why."""

    step: str
    """commit, file, site, placement, hold, pin, rollback, instance, node or next."""
    what: str
    why: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known of one deployment."""

    deployment: Deployment
    desired: Desired | None
    """What its file says; None where that is not kept."""
    author: str
    site: Site | None
    reachable: bool
    nodes: Sequence[Node]
    instances: Sequence[Instance]
    around: Sequence[Instance]
    """Every instance at the site, its own included."""
    hold: Hold | None
    pin: Pin | None
    secrets: Mapping[str, int]


def why_deployment(facts: Facts, now: datetime) -> tuple[Decision, ...]:
    placed = _placed(facts, now)
    return (
        *_wanted(facts),
        *_adopted(facts),
        *_placement(facts, placed),
        *_kept_back(facts),
        *_instances(facts),
        Decision("next", _next(facts, placed, now)),
    )


def why_node(node: Node, instances: Sequence[Instance], names: Mapping[DeploymentId, str]) -> tuple[Decision, ...]:
    """`names` are those of the deployments by id."""
    able = node.info.capabilities
    labels = ", ".join(f"{key}={value}" for key, value in node.info.labels.items()) or "no labels"
    runs = " and ".join(kind.value for kind in able.profile_types) or "nothing"
    carried = [item for item in instances if item.state is not State.DELETED]
    return (
        Decision("node", f"{node.id} of site {node.site}, {labels}", f"it joined by itself and runs {runs}"),
        Decision("node", f"it is {node.liveness}", "it was last heard then", node.last_seen),
        *([Decision("node", "it is drained", node.drain)] if node.drain is not None else []),
        *(
            Decision("instance", f"{names.get(item.deployment_id, item.deployment_id)}: {item.state}", _told(item))
            for item in carried
        ),
        Decision("next", _next_of_node(node, len(carried))),
    )


def _placed(facts: Facts, now: datetime) -> Placed | None:
    if facts.desired is None or not facts.deployment.wanted:
        return None
    roster = Roster(facts.nodes).carry(facts.around, {facts.desired.id: facts.desired})
    return place(facts.desired, roster, {item.node_id: item for item in facts.instances}, now)


def _wanted(facts: Facts) -> Iterator[Decision]:
    row, desired = facts.deployment, facts.desired
    if row.wanted:
        yield Decision(
            "commit", f"commit {row.commit[:8]} by {facts.author}", "its file was written or changed there"
        )
    else:
        yield Decision("commit", "its file is no longer in Git", "absence from a verified commit means removal")
    path = "" if desired is None else f"{desired.path}, "
    policy = "" if desired is None else _policy_text(desired)
    asks = f"it asks for {row.app_name} {row.app_version} at site {row.site}{policy}"
    yield Decision("file", f"{path}revision {short(row.revision)}", asks)
    if row.problem is not None:
        yield Decision("file", "the newest file is not followed", row.problem)


def _policy_text(desired: Desired) -> str:
    placement = desired.placement
    parts = ["on one node" if placement.mode is PlacementMode.ONE else "on each node that suits"]
    if placement.mode is PlacementMode.COUNT:
        parts = [f"on {placement.count} nodes"]
    parts += [f"with {placement.selector}"] if placement.selector else []
    parts += [f"of {', '.join(placement.nodes)}"] if placement.nodes else []
    return ", " + " ".join(parts)


def _adopted(facts: Facts) -> Iterator[Decision]:
    site = facts.site
    if site is None or site.last_seen is None:
        yield Decision("site", f"site {facts.deployment.site} has not called yet")
        return
    commit = "no commit yet" if site.applied_commit is None else f"commit {site.applied_commit[:8]}"
    reach = "" if facts.reachable else "it cannot be reached now, and goes on by itself"
    yield Decision("site", f"site {site.name} follows {commit}", site.problem or reach, site.last_seen)


def _placement(facts: Facts, placed: Placed | None) -> Iterator[Decision]:
    if placed is None:
        return
    held = {item.node_id: item for item in facts.instances}
    for node_id in placed.chosen:
        stays = node_id in held and held[node_id].state is not State.DELETED
        yield Decision("placement", f"{node_id} is chosen", "it has it already" if stays else "it suits")
    for node_id in placed.lingering:
        yield Decision("placement", f"{node_id} gives it up", "as soon as it is healthy where it moves to")
    for name in placed.unknown:
        yield Decision("placement", f"{name} is asked for", "the site has no node of that name")
    for group in placed.refusals:
        yield Decision("placement", f"{group.subject} not chosen", group.why)


def _kept_back(facts: Facts) -> Iterator[Decision]:
    hold, pin = facts.hold, facts.pin
    if hold is not None:
        scope = "site" if hold.deployment_id is None else "deployment"
        until = f"the {scope} is held until {_clock(hold.expires_at)} by {hold.author}"
        yield Decision("hold", until, hold.reason, hold.at)
    if pin is not None and pin.over == facts.deployment.revision:
        yield Decision("pin", f"{pin.author} went back to revision {short(pin.revision)}", pin.reason, pin.at)
    for item in facts.instances:
        if item.rejected_revision is not None and item.rejected_revision == facts.deployment.revision:
            back = f"{item.node_id} went back from revision {short(item.rejected_revision)}"
            yield Decision("rollback", back, "it is not applied again until Git has another one")


def _instances(facts: Facts) -> Iterator[Decision]:
    for item in facts.instances:
        if item.state is State.DELETED:
            continue
        place_ = item.node_id or "no node"
        order = f", order {item.generation}, attempt {item.attempt}" if item.generation else ""
        what = f"{place_}: {item.state} at revision {short(item.revision)}{order}"
        yield Decision("instance", what, _told(item), item.updated_at)


def _told(item: Instance) -> str:
    return f"{item.failure.message} ({item.failure.code})" if item.failure is not None else item.step


def _next(facts: Facts, placed: Placed | None, now: datetime) -> str:
    """The first thing that everything else waits for."""
    row = facts.deployment
    living = [item for item in facts.instances if item.state is not State.DELETED and item.node_id != UNPLACED]
    pinned = facts.pin is not None and facts.pin.over == row.revision
    wanted = facts.pin.revision if facts.pin is not None and pinned else row.revision
    behind = not row.wanted or not living or any(item.revision != wanted for item in living)
    if row.archived_at is not None:
        return "nothing: it is gone"
    if row.problem is not None:
        return "waits for a commit that mends its file"
    if not facts.reachable:
        return f"waits for site {row.site} to call"
    if facts.hold is not None and behind:
        return f"waits until {_clock(facts.hold.expires_at)}, or for  homeport sites release {row.site}"
    lacks = () if facts.desired is None else missing(facts.desired.release, facts.secrets)
    if row.wanted and lacks:
        return f"waits for secret {', '.join(lacks)}:  homeport secrets set {row.site} {lacks[0]}"
    return next(filter(None, (_next_of(item, facts, now) for item in living)), None) or _next_place(facts, placed)


def _next_of(item: Instance, facts: Facts, now: datetime) -> str | None:
    """None for an instance that is as it should be."""
    failure, node = item.failure, next((node for node in facts.nodes if node.id == item.node_id), None)
    if item.state is State.FAILED and item.next_at is not None:
        attempts = "" if facts.desired is None else f" of {facts.desired.policy.retries_max + 1}"
        moment = "now" if item.next_at <= now else f"at {item.next_at:%H:%M:%S} UTC"
        return f"attempt {item.attempt + 1}{attempts} on {item.node_id} {moment}"
    if failure is not None and failure.code == Code.NODE_OFFLINE:
        return f"waits for node {item.node_id} to be heard again"
    if item.state is State.FAILED:
        return "nothing by itself: a new commit, or  homeport deployments rollback"
    if item.state in IN_FLIGHT:
        heard = node is not None and node.liveness is not Liveness.LOST
        return f"{item.node_id} works on it" if heard else f"waits for node {item.node_id} to be heard again"
    return None


def _next_place(facts: Facts, placed: Placed | None) -> str:
    if not facts.deployment.wanted:
        return "it is removed"
    if not facts.nodes:
        return f"waits for a node to join site {facts.deployment.site}"
    if placed is None:
        return "nothing that is known here"
    if placed.missing:
        return "waits for a node that can take it"
    held = {item.node_id for item in facts.instances if item.state is not State.DELETED}
    waiting: list[NodeId] = [name for name in placed.chosen if name not in held]
    rules = (
        (waiting, f"is started on {_listed(waiting)}"),
        (not placed.chosen and placed.silent, f"waits for node {_listed(placed.silent)} to be heard again"),
        (placed.lingering, f"is taken from {_listed(placed.lingering)} when it is healthy elsewhere"),
    )
    return next((said for holds, said in rules if holds), "nothing: it is as wanted")


def _listed(names: Sequence[NodeId]) -> str:
    return ", ".join(names[:3])


def _next_of_node(node: Node, carries: int) -> str:
    if node.liveness is Liveness.LOST:
        return "waits to be heard again; what it holds stays its own for a while"
    if node.drain is None:
        return "takes work"
    return "nothing: it is empty" if not carries else f"{carries} instances are still to leave it"


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
