"""The planner of a site: desired + observed + now → moves.

Level-based: it looks at everything each time and keeps no state. A move is one step of one instance, with its reason;
some also carry an order for the node. A site that has converged has no moves.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final

from homeport.core.model.demand import Resources
from homeport.core.model.deployment import Desired, Hold
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import Placed
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.demand import place_deployment, reserved, resources_of
from homeport.core.reconcile.holds import Target, without_held
from homeport.core.reconcile.instances import Instances, Key
from homeport.core.reconcile.recovery import Recovery, after_failure, is_due
from homeport.core.secrets import missing, versions_for
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import (
    UNPLACED,
    Code,
    DeploymentId,
    Digest,
    Liveness,
    NodeId,
    OrderKind,
    PlacementMode,
    SiteName,
)
from homeport.vocabulary import State as S
from homeport.vocabulary import Trigger as H

REMOVAL_RETRY_SECONDS: Final = 30.0
"""Delay before a failed removal is retried."""


@dataclass(frozen=True, slots=True)
class View:
    """All inputs of a plan."""

    desired: Mapping[DeploymentId, Desired]
    unreadable: frozenset[DeploymentId]
    """Deployments whose file is in Git but invalid: they stay unchanged."""
    nodes: Mapping[NodeId, Node]
    instances: Mapping[Key, Instance]
    secrets: Mapping[str, int] = field(default_factory=dict)
    """The version of each secret that the site has."""
    given: Mapping[Key, Mapping[str, int]] = field(default_factory=dict)
    """The secrets that were sent with each instance's newest order, where there were any."""
    holds: tuple[Hold, ...] = ()
    """What operators have put on hold."""
    by_hand: frozenset[Target] = frozenset()
    """Manual rollbacks made at the site: they ignore holds."""
    spent: Mapping[Key, float] = field(default_factory=dict)
    """Seconds that each change has taken, up to its last failure."""
    past: Mapping[tuple[DeploymentId, Digest], Desired] = field(default_factory=dict)
    """Older revisions that still run somewhere, or are being rolled back to."""
    damaged: Mapping[DeploymentId, str] = field(default_factory=dict)
    """Deployments that must stay unchanged, and why: what is stored about them cannot be read."""
    others: tuple[tuple[NodeId, Resources], ...] = ()
    """What work of other kinds has reserved of the nodes: running jobs."""


def wanted_of(
    instance: Instance, desired: Desired, past: Mapping[tuple[DeploymentId, Digest], Desired]
) -> Desired | None:
    """What is wanted of one instance: its file's content, or the release it rolled back to until that file changes.
    None when that release is no longer known: then the instance stays unchanged."""
    if instance.revision is None or instance.rejected_revision != desired.revision:
        return desired
    return past.get((instance.deployment_id, instance.revision))


@dataclass(frozen=True, slots=True)
class Move:
    deployment_id: DeploymentId
    node_id: NodeId
    trigger: H
    why: str
    revision: Digest | None
    order: OrderKind | None = None
    failure: Failure | None = None
    begins: bool = False
    """Whether this is the first step of a new life of the instance."""


def plan(view: View, now: datetime, only: Collection[DeploymentId] | None = None) -> tuple[Move, ...]:
    """The moves that turn the observed state into the desired one; with `only`, those of these deployments."""
    planner = Planner(view, now)
    return in_order([move for key in planner.concerned(only) for move in planner.moves_of(key)])


def in_order(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Removals first, so that ports and memory are free: first of what is no longer wanted, then of what moves."""
    return tuple(sorted(moves, key=lambda move: move.order is not OrderKind.REMOVE))


class Planner:
    """One planning pass over a site. Placing an instance takes its room, so that the next one sees it."""

    def __init__(self, view: View, now: datetime) -> None:
        self.view = view
        self.now = now
        self._roster = Roster(view.nodes.values())
        self._is_carried = False
        self._instances = Instances.of(view.instances)

    def concerned(self, only: Collection[DeploymentId] | None = None) -> list[DeploymentId]:
        """The deployments to look at, those to be removed first."""
        known = self.view.desired.keys() | self._instances.deployments
        found = known if only is None else {key for key in only if key in known}
        return sorted(found, key=lambda key: (key in self.view.desired, key))

    def instances_of(self, deployment_id: DeploymentId) -> Sequence[Instance]:
        return tuple(self._instances.of_deployment(deployment_id).values())

    def moves_of(self, deployment_id: DeploymentId) -> tuple[Move, ...]:
        """The moves of one deployment that no hold withholds."""
        view, desired = self.view, self.view.desired.get(deployment_id)
        if deployment_id in view.unreadable:
            return ()
        if desired is None:
            moves = [
                move
                for instance in sorted(self.instances_of(deployment_id), key=lambda each: each.node_id)
                for move in _leave(instance, view, self.now, why="its file was removed from Git")
            ]
        else:
            found = _follow(desired, self.instances_of(deployment_id), view, self._room(desired), self.now)
            moves = [*_without_missing_secrets(found, desired, view)]
        return without_held(moves, view.holds, view.nodes.keys(), self.now, by_hand=view.by_hand)

    def _room(self, desired: Desired) -> Roster:
        """The nodes, with their load where that affects the choice."""
        if desired.placement.mode is not PlacementMode.EACH and not self._is_carried:
            self._roster.reserve(reserved(self.view.instances.values(), self.view.desired)).reserve(self.view.others)
            self._is_carried = True
        return self._roster


def _follow(
    desired: Desired, instances: Sequence[Instance], view: View, roster: Roster, now: datetime
) -> Iterator[Move]:
    """Moves for one deployment that is wanted."""
    suited = place_deployment(desired, roster, {instance.node_id: instance for instance in instances}, now)
    # Whether a node may keep an instance does not depend on whether it is connected right now.
    fits = {*suited.chosen, *suited.silent}
    placed = {instance.node_id: instance for instance in instances if instance.node_id != UNPLACED}
    for node_id in sorted(placed):
        instance, node = placed[node_id], view.nodes.get(node_id)
        if node is None:
            yield from _leave(instance, view, now, why="its node was removed from the site")
        elif node_id in suited.lingering or node_id in suited.stranded:
            # Make before break: it is removed when its successor is healthy, and stays where there can be none.
            yield from [*_refuse(instance, desired, suited, view)] or _maintain(instance, desired, node, view, now)
        elif node_id not in fits:
            yield from _leave(instance, view, now, why=suited.refused.get(node_id, "it is no longer placed here"))
        elif not node.info.capabilities.engine and node.liveness is not Liveness.LOST:
            continue  # At boot the node may start before its engine; it catches up when the engine responds.
        elif (wanted := wanted_of(instance, desired, view.past)) is not None:
            # A changed secret causes another order for the same revision; earlier failures no longer count.
            yield from [*_keep_up(instance, wanted, node, view)] or _recover(instance, wanted, node, view, now)
    for node_id in suited.chosen:
        if node_id not in placed:
            why = f"{desired.name} {desired.app_version} is wanted here"
            yield Move(desired.id, node_id, H.SCHEDULED, why, desired.revision, OrderKind.APPLY, begins=True)
            roster.take(node_id, resources_of(desired))
    unplaced = next((instance for instance in instances if instance.node_id == UNPLACED), None)
    already_reported = sum(_reports_no_node(placed[node_id], desired) for node_id in suited.stranded)
    yield from _explain(desired, unplaced, suited, view, now, already_reported=already_reported)


def _refuse(instance: Instance, desired: Desired, suited: Placed, view: View) -> Iterator[Move]:
    """An update that no node can take is recorded as failed. No order is sent: the node knows nothing of it, and what
    runs there stays. Work under way ends first."""
    is_new = desired.revision not in (instance.revision, instance.rejected_revision)
    is_over = instance.state is S.FAILED and instance.next_at is None and _code(instance) != Code.NODE_OFFLINE
    if instance.node_id not in suited.stranded or not is_new or not (instance.state is S.INSTALLED or is_over):
        return
    before = None if is_over else _at(instance, desired, view)
    still = "what runs stays as it is" if before is None else f"{before.app_version} keeps running"
    none = "no further node" if suited.chosen else "no node"
    message = f"{none} can take {desired.app_version}: {suited.explain()}; {still} on {instance.node_id}"
    trigger = H.SUPERSEDED_UPDATE if is_over else H.CHANGED
    yield Move(desired.id, instance.node_id, trigger, _difference(instance, desired), desired.revision)
    failure = Failure(Code.NO_ELIGIBLE_NODE, message)
    yield Move(desired.id, instance.node_id, H.GAVE_UP, message, desired.revision, failure=failure)


def _maintain(instance: Instance, desired: Desired, node: Node, view: View, now: datetime) -> Iterator[Move]:
    """Moves for an instance that is to move elsewhere: until then it is kept up with the release that it has."""
    wanted = _at(instance, desired, view)
    if _has_no_node(instance):
        yield from _renew(instance, view)
    elif wanted is not None:
        yield from [*_keep_up(instance, wanted, node, view)] or _recover(instance, wanted, node, view, now)


def _renew(instance: Instance, view: View) -> Iterator[Move]:
    """A changed secret is also delivered to what runs while no node can take the wanted release: the running release
    is applied again with the newest value, and the refusal is recorded again after that. A secret that the newest
    order did not have is not a change: that order may have been for a release that failed."""
    revision = instance.running_revision
    runs = None if revision is None else view.past.get((instance.deployment_id, revision))
    if runs is None or missing(runs.release, view.secrets):
        return
    now = versions_for(runs.release, view.secrets)
    given = view.given.get(instance.key, dict.fromkeys(now, 0))
    name = next((name for name in now if given.get(name, now[name]) != now[name]), None)
    if name is not None:
        why = f"the secret {name} has version {now[name]} now"
        yield Move(runs.id, instance.node_id, H.SUPERSEDED_UPDATE, why, runs.revision, OrderKind.APPLY)


def _at(instance: Instance, desired: Desired, view: View) -> Desired | None:
    """The revision that an instance is at or moving to; None when it is no longer known."""
    revision = instance.revision or desired.revision
    return desired if revision == desired.revision else view.past.get((desired.id, revision))


def _reports_no_node(instance: Instance, desired: Desired) -> bool:
    """Whether an instance reports, or will when its work is over, that no node can take the wanted release."""
    return desired.revision not in (instance.revision, instance.rejected_revision) or _has_no_node(instance)


def _has_no_node(instance: Instance) -> bool:
    """Whether it runs an older release because no node can take the wanted one."""
    return instance.state is S.FAILED and _code(instance) == Code.NO_ELIGIBLE_NODE


def _code(instance: Instance) -> str | None:
    return None if instance.failure is None else instance.failure.code


def _keep_up(instance: Instance, desired: Desired, node: Node, view: View) -> Iterator[Move]:
    """Moves for an instance on an eligible node: a newer revision, a changed secret, a lost node."""
    renewed = _renewed(instance, desired, view)
    newer = instance.revision != desired.revision or bool(renewed)
    runs = instance.running_revision is not None

    def move(trigger: H, why: str, order: OrderKind | None, failure: Failure | None = None) -> Move:
        return Move(desired.id, instance.node_id, trigger, why, desired.revision, order, failure)

    match instance.state:
        case S.INSTALLED if newer:
            yield move(H.CHANGED, renewed or _why_newer(instance, desired, view), OrderKind.APPLY)
        case S.INSTALLING | S.UPDATING | S.ROLLINGBACK | S.FAILED if newer:
            trigger = H.SUPERSEDED_UPDATE if runs else H.SUPERSEDED_INSTALL
            yield move(trigger, renewed or _why_newer(instance, desired, view), OrderKind.APPLY)
        case S.INSTALLING | S.UPDATING | S.ROLLINGBACK if node.liveness is Liveness.LOST:
            why = f"{node.id} has sent no heartbeat for too long"
            yield move(H.GAVE_UP, why, None, Failure(Code.NODE_OFFLINE, f"{why} while it worked on this"))
        case _:
            pass


def _recover(instance: Instance, wanted: Desired, node: Node, view: View, now: datetime) -> Iterator[Move]:
    """Moves for an instance whose newest order has failed, once its retry or rollback is due."""
    failure = instance.failure
    if instance.state is not S.FAILED or failure is None or wanted.revision != instance.revision:
        return
    retried = H.RETRIED_UPDATE if instance.running_revision is not None else H.RETRIED_INSTALL
    if failure.code in (Code.NODE_OFFLINE, Code.NO_ELIGIBLE_NODE):
        if node.liveness is Liveness.LIVE:
            trigger = retried if instance.rejected_revision is None else H.ROLLED_BACK
            why = f"{node.id} is back" if failure.code == Code.NODE_OFFLINE else f"{node.id} can take it now"
            yield Move(wanted.id, node.id, trigger, why, wanted.revision, OrderKind.APPLY)
        return
    if _failed_removing(instance):
        may_try = instance.attempt <= wanted.policy.retries_max and node.liveness is not Liveness.LOST
        if may_try and not _waits_for_retry(instance, now):
            why = "what could not be removed is wanted, or in the way"
            trigger = retried if instance.rejected_revision is None else H.ROLLED_BACK
            yield Move(wanted.id, node.id, trigger, why, wanted.revision, OrderKind.APPLY)
        return
    if instance.next_at is None or not is_due(instance.next_at, now) or node.liveness is Liveness.LOST:
        return
    following = after_failure(
        instance,
        failure,
        wanted.policy,
        can_roll_back=can_roll_back(instance, view.past),
        spent_seconds=view.spent.get(instance.key, 0.0),
    )
    if following is None or following.recovery is Recovery.GIVE_UP:
        return
    if following.recovery is Recovery.RETRY:
        yield Move(wanted.id, node.id, retried, following.why, wanted.revision, OrderKind.APPLY)
    else:
        target = instance.running_revision if instance.rejected_revision is None else instance.revision
        yield Move(wanted.id, node.id, H.ROLLED_BACK, following.why, target, OrderKind.APPLY)


def can_roll_back(instance: Instance, past: Mapping[tuple[DeploymentId, Digest], Desired]) -> bool:
    """Whether another release was healthy here before, and is still known."""
    good = instance.running_revision
    return good is not None and good != instance.revision and (instance.deployment_id, good) in past


def _renewed(instance: Instance, desired: Desired, view: View) -> str:
    """Why changed secrets require another order although the file is unchanged; empty when they do not.

    Where one is missing here nothing is renewed: what runs keeps the value it has.
    """
    if instance.revision != desired.revision or missing(desired.release, view.secrets):
        return ""
    given, now = view.given.get(instance.key, {}), versions_for(desired.release, view.secrets)
    if dict(given) == now:
        return ""
    name = next((name for name in now if given.get(name) != now[name]), "")
    return f"the secret {name} has version {now[name]} now" if name else "a secret is no longer used"


def _without_missing_secrets(moves: Iterable[Move], desired: Desired, view: View) -> Iterator[Move]:
    """An order that cannot be sent because a secret is missing counts as failed, with that reason, until it is
    there; also one for an older release, whose secret may have been removed since."""
    for move in moves:
        yield move
        revision = move.revision or desired.revision
        wanted = desired if revision == desired.revision else view.past.get((desired.id, revision))
        if move.order is OrderKind.APPLY and wanted is not None and (names := missing(wanted.release, view.secrets)):
            failure = secret_missing(desired.site, names)
            yield Move(desired.id, move.node_id, H.GAVE_UP, failure.message, move.revision, failure=failure)


def secret_missing(site: SiteName, names: Sequence[str]) -> Failure:
    return Failure(Code.SECRET_MISSING, f"site {site} has no secret {', '.join(names)}")


def _leave(instance: Instance, view: View, now: datetime, *, why: str) -> Iterator[Move]:
    """Moves that remove an instance, from any state."""
    node = view.nodes.get(instance.node_id)
    if instance.state is S.DELETED or _waits_for_retry(instance, now):
        return
    order = OrderKind.REMOVE if node is not None else None
    if instance.state is not S.DELETING:
        yield Move(instance.deployment_id, instance.node_id, H.UNWANTED, why, instance.revision, order)
    if node is None:
        # Nothing was placed, or the machine is permanently gone: no node could confirm the removal.
        done = "nothing was placed" if instance.node_id == UNPLACED else "its node was removed from the site"
        yield Move(instance.deployment_id, instance.node_id, H.REMOVED, done, instance.revision)


def _explain(
    desired: Desired, unplaced: Instance | None, suited: Placed, view: View, now: datetime, *, already_reported: int
) -> Iterator[Move]:
    """Records that no node can take an instance, and withdraws that when it is no longer true. `said` is how many
    instances already report it themselves."""
    missing = max(0, suited.missing - already_reported)
    if unplaced is not None and (not missing or unplaced.revision != desired.revision):
        why = "a newer revision came" if missing else "a node can take it"
        yield from _leave(unplaced, view, now, why=why)
        unplaced = None
    if not missing or unplaced is not None or not view.nodes:
        return  # It is placed, waits for a node to connect, or was reported already.
    failure = Failure(Code.NO_ELIGIBLE_NODE, _lacks(desired, suited))
    yield Move(desired.id, UNPLACED, H.UNPLACEABLE, failure.message, desired.revision, failure=failure, begins=True)


def _lacks(desired: Desired, suited: Placed) -> str:
    some = f"{suited.missing} of {desired.placement.count} instances have no node"
    return f"{some if suited.chosen else 'no node of the site can take it'}: {suited.explain()}"


def _why_newer(instance: Instance, desired: Desired, view: View) -> str:
    past = None if instance.revision is None else view.past.get((desired.id, instance.revision))
    if desired.retry and (instance.state is S.FAILED or instance.rejected_revision is not None):
        return f"operator asked again ({desired.retry})"
    if desired.restart and past is not None and past.restart != desired.restart:
        return f"operator asked for a restart ({desired.restart})"
    return _difference(instance, desired) if instance.state is S.INSTALLED else "a newer revision is wanted"


def _difference(instance: Instance, desired: Desired) -> str:
    return f"its file changed: revision {short(instance.revision)} → {short(desired.revision)}"


def is_due_by_time(instance: Instance, now: datetime) -> bool:
    """Whether the plan has something to do only because time has passed."""
    if instance.state is not S.FAILED:
        return False
    if instance.next_at is not None:
        return is_due(instance.next_at, now)
    return _failed_removing(instance) and not _waits_for_retry(instance, now)


def _waits_for_retry(instance: Instance, now: datetime) -> bool:
    """Whether it still waits for its retry. A clock that was set back does not extend the wait."""
    since = now - instance.updated_at
    is_soon = timedelta(0) <= since < timedelta(seconds=REMOVAL_RETRY_SECONDS)
    return instance.state is S.FAILED and _failed_removing(instance) and is_soon


def _failed_removing(instance: Instance) -> bool:
    """Whether the last failure was a removal: of the whole, or of a component that an update dropped."""
    return _code(instance) == Code.REMOVE_FAILED


def short(revision: Digest | None) -> str:
    """A digest as shown to people."""
    return "none" if revision is None else revision.removeprefix("sha256:")[:8]
