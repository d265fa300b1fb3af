"""Explains the current state: the chain of decisions from a commit to a container, each with its reason.

Derived from records alone, with the same functions that decide, so that the explanation matches what is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from homeport.core.lifecycle.deployment import IN_FLIGHT
from homeport.core.model.demand import Resources
from homeport.core.model.deployment import Desired, Hold, Pin
from homeport.core.model.event import Deployment, HistoryEntry, Site
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import Placed
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.demand import place_deployment, reserved
from homeport.core.reconcile.plan import short
from homeport.core.secrets import missing
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import (
    UNPLACED,
    Code,
    DeploymentId,
    Digest,
    Liveness,
    NodeId,
    OnUnhealthy,
    PlacementMode,
    State,
    Trigger,
)

_BEGINS: Final = frozenset(
    {
        Trigger.SCHEDULED,
        Trigger.CHANGED,
        Trigger.SUPERSEDED_INSTALL,
        Trigger.SUPERSEDED_UPDATE,
        Trigger.UNWANTED,
        Trigger.RESTATED,
    }
)
"""What a change of an instance begins with; retries and rollbacks belong to the change before them."""
_STEPS_MAX: Final = 12
"""Of the last change of one instance: an update that failed four times and was rolled back has ten."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One link of the chain: what was decided, about what, and why."""

    step: str
    """commit, file, site, placement, hold, pin, rollback, history, instance, health, node or next."""
    what: str
    why: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The inputs: all that is known about one deployment."""

    deployment: Deployment
    desired: Desired | None
    """The content of its file; None where that is not stored."""
    author: str
    committed_at: datetime | None
    site: Site | None
    reachable: bool
    nodes: Sequence[Node]
    instances: Sequence[Instance]
    around: Sequence[Instance]
    """Every instance at the site, including its own."""
    hold: Hold | None
    pin: Pin | None
    """The rollback by hand from the revision that the deployment has in Git."""
    secrets: Mapping[str, int]
    others: Sequence[tuple[NodeId, Resources]] = ()
    """What jobs have reserved of the nodes."""
    history: Sequence[HistoryEntry] = ()
    """Of this deployment, in the order of writing."""


def why_deployment(facts: Facts, now: datetime) -> tuple[Decision, ...]:
    placed = _placed(facts, now)
    return (
        *_wanted(facts),
        *_adopted(facts),
        *_placement(facts, placed),
        *_kept_back(facts),
        *_last_change(facts.history, facts.instances),
        *_instances(facts),
        Decision("next", _next(facts, placed, now)),
    )


def why_node(node: Node, instances: Sequence[Instance], names: Mapping[DeploymentId, str]) -> tuple[Decision, ...]:
    """`names` are those of the deployments by id."""
    able = node.info.capabilities
    labels = ", ".join(f"{key}={value}" for key, value in node.labels.items()) or "no labels"
    runs = " and ".join(kind.value for kind in able.profile_types) or "nothing"
    reserved = [item for item in instances if item.state is not State.DELETED]
    return (
        Decision("node", f"{node.id} of site {node.site}, {labels}", f"it joined by itself and runs {runs}"),
        Decision("node", f"it is {node.liveness}", "its last heartbeat was then", node.last_seen),
        *([Decision("node", "it has a problem", node.problem)] if node.problem is not None else []),
        *([Decision("node", "it is drained", node.drain)] if node.drain is not None else []),
        *(
            Decision(
                "instance", f"{names.get(item.deployment_id, item.deployment_id)}: {item.state}", _status_text(item)
            )
            for item in reserved
        ),
        Decision("next", _next_of_node(node, len(reserved))),
    )


def _placed(facts: Facts, now: datetime) -> Placed | None:
    if facts.desired is None or not facts.deployment.wanted:
        return None
    roster = Roster(facts.nodes).reserve(reserved(facts.around, {facts.desired.id: facts.desired}))
    roster.reserve(facts.others)
    return place_deployment(facts.desired, roster, {item.node_id: item for item in facts.instances}, now)


def _wanted(facts: Facts) -> Iterator[Decision]:
    row, desired = facts.deployment, facts.desired
    if row.wanted:
        written = "its file was written or changed there"
        yield Decision("commit", f"commit {row.commit[:8]} by {facts.author}", written, facts.committed_at)
    else:
        yield Decision("commit", "its file is no longer in Git", "absence from a verified commit means removal")
    path = "" if desired is None else f"{desired.path}, "
    policy = "" if desired is None else _policy_text(desired)
    asks = f"it asks for {row.app_name} {row.app_version} at site {row.site}{policy}"
    yield Decision("file", f"{path}revision {short(row.revision)}", asks)
    if row.problem is not None:
        yield Decision("file", "the newest file is not followed", row.problem)
    if row.set_aside is not None:
        yield Decision("site", f"site {row.site} leaves it as it is", row.set_aside)


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
    reach = "" if facts.reachable else "it cannot be reached now; its workloads keep running"
    yield Decision("site", f"site {site.name} follows {commit}", site.problem or reach, site.last_seen)


def _placement(facts: Facts, placed: Placed | None) -> Iterator[Decision]:
    if placed is None:
        return
    held = {item.node_id: item for item in facts.instances}
    for node_id in placed.chosen:
        stays = node_id in held and held[node_id].state is not State.DELETED
        yield Decision("placement", f"{node_id} is chosen", "it was chosen before" if stays else "it suits")
    for node_id in placed.lingering:
        yield Decision("placement", f"{node_id} gives it up", "as soon as it is healthy where it moves to")
    for node_id in placed.stranded:
        yield Decision("placement", f"{node_id} keeps what runs there", "no other node can take its place")
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
    if pin is not None:
        yield Decision("pin", f"{pin.author} went back to revision {short(pin.revision)}", pin.reason, pin.at)
    for item in facts.instances:
        if item.rejected_revision is not None and item.rejected_revision == facts.deployment.revision:
            back = f"{item.node_id} went back from revision {short(item.rejected_revision)}"
            yield Decision("rollback", back, "it is not applied again until Git has another one")


def _last_change(history: Sequence[HistoryEntry], instances: Sequence[Instance]) -> Iterator[Decision]:
    """What happened to each instance since its last change began."""
    for item in instances:
        own = [entry for entry in history if (entry.node_id, entry.incarnation) == (item.node_id, item.incarnation)]
        begun = max((number for number, entry in enumerate(own) if entry.trigger in _BEGINS), default=0)
        for entry in own[begun:][-_STEPS_MAX:]:
            what = f"{entry.node_id or 'no node'}: {entry.before} → {entry.after}"
            yield Decision("history", what, entry.reason, entry.at)


def _instances(facts: Facts) -> Iterator[Decision]:
    for item in facts.instances:
        if item.state is State.DELETED:
            continue
        place_ = item.node_id or "no node"
        order = f", order {item.generation}, attempt {item.attempt}" if item.generation else ""
        what = f"{place_}: {item.state} at revision {short(item.revision)}{order}"
        why = _status_text(item) if item.is_failing(facts.deployment.revision) else item.step
        yield Decision("instance", what, why, item.updated_at)
        if item.unhealthy is not None:
            yield Decision("health", f"{place_}: unhealthy", item.unhealthy.why, item.unhealthy.since)


def _status_text(item: Instance) -> str:
    return str(item.failure) if item.failure is not None else item.step


def _next(facts: Facts, placed: Placed | None, now: datetime) -> str:
    """The first thing that everything else waits for."""
    row = facts.deployment
    living = [item for item in facts.instances if item.state is not State.DELETED and item.node_id != UNPLACED]
    wanted = _asked_for(facts)
    behind = not row.wanted or not living or any(item.revision != wanted for item in living)
    if (stuck := _stuck(facts)) is not None:
        return stuck
    if facts.hold is not None and behind:
        return f"waits until {_clock(facts.hold.expires_at)}, or for  homeport sites release {row.site}"
    lacks = () if facts.desired is None else missing(facts.desired.release, facts.secrets)
    if row.wanted and lacks:
        return f"waits for secret {', '.join(lacks)}:  homeport secrets set {row.site} {lacks[0]}"
    return next(filter(None, (_next_of(item, facts, now) for item in living)), None) or _next_place(facts, placed)


def _stuck(facts: Facts) -> str | None:
    """What blocks everything else."""
    row = facts.deployment
    rules = (
        (row.archived_at is not None, "nothing: it is gone"),
        (row.problem is not None, "waits for a commit that fixes its file"),
        (not facts.reachable, f"waits for site {row.site} to call"),
        (row.set_aside is not None, f"waits until site {row.site} can plan it: it tries again every minute"),
    )
    return next((said for holds, said in rules if holds), None)


def _next_of(item: Instance, facts: Facts, now: datetime) -> str | None:
    """None for an instance that needs nothing."""
    failure, node = item.failure, next((node for node in facts.nodes if node.id == item.node_id), None)
    if item.state is State.FAILED and item.next_at is not None:
        attempts = "" if facts.desired is None else f" of {facts.desired.policy.retries_max + 1}"
        moment = "now" if item.next_at <= now else f"at {item.next_at:%H:%M:%S} UTC"
        return f"attempt {item.attempt + 1}{attempts} on {item.node_id} {moment}"
    if failure is not None and failure.code == Code.NODE_OFFLINE:
        return f"waits for node {item.node_id} to send a heartbeat"
    if failure is not None and failure.code == Code.NO_ELIGIBLE_NODE:
        return "waits for a node that can take it; what runs stays until then"
    if item.state is State.FAILED:
        return _next_of_failed(item, facts.deployment)
    if item.state in IN_FLIGHT:
        heard = node is not None and node.liveness is not Liveness.LOST
        return f"{item.node_id} works on it" if heard else f"waits for node {item.node_id} to send a heartbeat"
    return None if item.unhealthy is None else _next_of_unhealthy(item, facts)


def _next_of_failed(item: Instance, row: Deployment) -> str:
    """Only commands that would not be refused."""
    name = f"{row.name}@{row.site}"
    if not row.wanted:
        return "its removal is tried again by itself"
    can_roll_back = item.running_revision not in (None, row.revision)
    back = f", or  homeport deployments rollback {name}" if can_roll_back else ""
    return f"nothing by itself: try again with  homeport deployments retry {name} , or push a new commit{back}"


def _next_of_unhealthy(item: Instance, facts: Facts) -> str:
    restarts = facts.desired is not None and facts.desired.policy.on_unhealthy is OnUnhealthy.RESTART
    what = "restarts it" if restarts else "reports it and restarts nothing (policy onUnhealthy: report)"
    return f"{item.node_id} watches its health and {what}"


_AGAIN: Final = "it is tried again with a new commit, or with"


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
    row, name = facts.deployment, f"{facts.deployment.name}@{facts.deployment.site}"
    living = [item for item in facts.instances if item.node_id in held]
    rejected = [item for item in living if item.rejected_revision == row.revision]
    behind = [item.node_id for item in living if item.running_revision not in (None, _asked_for(facts))]
    rules = (
        (waiting, f"is started on {_listed(waiting)}"),
        (not placed.chosen and placed.silent, f"waits for node {_listed(placed.silent)} to send a heartbeat"),
        (placed.lingering, f"is taken from {_listed(placed.lingering)} when it is healthy elsewhere"),
        (rejected, f"{row.app_version} was rolled back; {_AGAIN}  homeport deployments retry {name}"),
        (behind, f"{_listed(behind)} runs another release than Git asks for; its site follows"),
    )
    return next((said for holds, said in rules if holds), "nothing: it is as wanted")


def _asked_for(facts: Facts) -> Digest:
    """The revision that Git wants, or the one a manual rollback chose until that is written to Git."""
    return facts.deployment.revision if facts.pin is None else facts.pin.revision


def _listed(names: Sequence[NodeId]) -> str:
    return ", ".join(names[:3])


def _next_of_node(node: Node, carries: int) -> str:
    if node.liveness is Liveness.LOST:
        return "waits for its next heartbeat; its instances stay assigned for a while"
    if node.drain is None:
        return "takes work"
    left = "1 instance still has" if carries == 1 else f"{carries} instances still have"
    return f"{left} to leave it" if carries else "nothing: it is empty"


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
