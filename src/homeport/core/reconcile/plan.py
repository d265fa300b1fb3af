"""What a site has to do so that what is wanted becomes true: desired + observed + now → moves.

Level-based: it looks at everything each time and remembers nothing. A move is one step of one instance, with
its reason; those with an order also give the node something to do. A site already right has no moves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from homeport.core.model.deployment import Desired, Hold
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.placement.choose import Placed, place
from homeport.core.placement.roster import Roster, need_of
from homeport.core.reconcile.holds import Target, without_held
from homeport.core.reconcile.recovery import Way, after_failure, is_due
from homeport.core.secrets import missing, versions_for
from homeport.vocabulary import UNPLACED, Code, DeploymentId, Digest, Liveness, NodeId, OrderKind
from homeport.vocabulary import Happening as H
from homeport.vocabulary import State as S

REMOVAL_RETRY_SECONDS: Final = 30.0
"""How long a failed removal rests before it is tried again."""

Key = tuple[DeploymentId, NodeId]


@dataclass(frozen=True, slots=True)
class View:
    """All that a site knows when it plans."""

    desired: Mapping[DeploymentId, Desired]
    kept: frozenset[DeploymentId]
    """Deployments whose file is in Git but cannot be read: they stay exactly as they are."""
    nodes: Mapping[NodeId, Node]
    instances: Mapping[Key, Instance]
    secrets: Mapping[str, int] = field(default_factory=dict)
    """The version of each secret that the site has."""
    given: Mapping[Key, Mapping[str, int]] = field(default_factory=dict)
    """The secrets that went out with each instance's newest order, where there were any."""
    holds: tuple[Hold, ...] = ()
    """What people want left as it is for a while."""
    by_hand: frozenset[Target] = frozenset()
    """What people at the site went back to: no hold keeps that waiting."""
    spent: Mapping[Key, float] = field(default_factory=dict)
    """Seconds that each change has taken, up to its last failure."""
    past: Mapping[tuple[DeploymentId, Digest], Desired] = field(default_factory=dict)
    """Older revisions that still run somewhere, or are gone back to."""


def wanted_of(
    instance: Instance, desired: Desired, past: Mapping[tuple[DeploymentId, Digest], Desired]
) -> Desired | None:
    """What is wanted of one instance: what its file says, or the release it went back to until that file says
    something else. None when that release is no longer known: then the instance stays as it is."""
    if instance.revision is None or instance.rejected_revision != desired.revision:
        return desired
    return past.get((instance.deployment_id, instance.revision))


@dataclass(frozen=True, slots=True)
class Move:
    deployment_id: DeploymentId
    node_id: NodeId
    happening: H
    why: str
    revision: Digest | None
    order: OrderKind | None = None
    failure: Failure | None = None
    begins: bool = False
    """Whether this is the first step of a new life of the instance."""


def plan(view: View, now: datetime) -> tuple[Move, ...]:
    """The moves that turn what is into what is wanted, removals first so that ports and memory are free."""
    removals = [
        move
        for key in sorted(view.instances)
        if key[0] not in view.desired and key[0] not in view.kept
        for move in _leave(view.instances[key], view, now, why="its file was removed from Git")
    ]
    by_deployment: dict[DeploymentId, list[Instance]] = {}
    for instance in view.instances.values():
        by_deployment.setdefault(instance.deployment_id, []).append(instance)
    roster = Roster(view.nodes.values()).carry(view.instances.values(), view.desired)
    changes = [
        move
        for deployment_id in sorted(view.desired)
        if deployment_id not in view.kept
        for move in _follow(view.desired[deployment_id], by_deployment.get(deployment_id, []), view, roster, now)
    ]
    leaving = [move for move in changes if move.order is OrderKind.REMOVE]
    moves = (*removals, *leaving, *(move for move in changes if move.order is not OrderKind.REMOVE))
    return without_held(moves, view.holds, view.nodes.keys(), now, by_hand=view.by_hand)


def _follow(desired: Desired, instances: list[Instance], view: View, roster: Roster, now: datetime) -> Iterator[Move]:
    """Moves for one deployment that is wanted."""
    suited = place(desired, roster, {instance.node_id: instance for instance in instances}, now)
    # Whether a node may keep an instance does not depend on whether it can be heard right now.
    fits = {*suited.chosen, *suited.silent}
    placed = {instance.node_id: instance for instance in instances if instance.node_id != UNPLACED}
    for node_id in sorted(placed):
        instance, node = placed[node_id], view.nodes.get(node_id)
        if node is None:
            yield from _leave(instance, view, now, why="its node was removed from the site")
        elif node_id in suited.lingering:
            continue  # It goes when the one that takes its place is healthy.
        elif node_id not in fits:
            yield from _leave(instance, view, now, why=suited.refused.get(node_id, "it is no longer placed here"))
        elif not node.info.capabilities.engine and node.liveness is not Liveness.LOST:
            continue  # A machine that boots may start its node before its engine; it catches up when that answers.
        elif (wanted := wanted_of(instance, desired, view.past)) is not None:
            # A secret that changed gives another order for the same revision: what failed before it is past.
            yield from [*_keep_up(instance, wanted, node, view)] or _recover(instance, wanted, node, view, now)
    for node_id in suited.chosen:
        if node_id not in placed:
            why = f"{desired.name} {desired.app_version} is wanted here"
            yield Move(desired.id, node_id, H.SCHEDULED, why, desired.revision, OrderKind.APPLY, begins=True)
            yield from _lament(desired, node_id, view)
            roster.take(node_id, need_of(desired))
    unplaced = next((instance for instance in instances if instance.node_id == UNPLACED), None)
    yield from _explain(desired, unplaced, suited, view, now)


def _keep_up(instance: Instance, desired: Desired, node: Node, view: View) -> Iterator[Move]:
    """Moves for an instance on a node that suits it: a newer revision, a changed secret, a lost node."""
    renewed = _renewed(instance, desired, view)
    newer = instance.revision != desired.revision or bool(renewed)
    runs = instance.running_revision is not None

    def move(happening: H, why: str, order: OrderKind | None, failure: Failure | None = None) -> Move:
        return Move(desired.id, instance.node_id, happening, why, desired.revision, order, failure)

    match instance.state:
        case S.INSTALLED if newer:
            yield move(H.CHANGED, renewed or _difference(instance, desired), OrderKind.APPLY)
            yield from _lament(desired, instance.node_id, view)
        case S.INSTALLING | S.UPDATING | S.ROLLINGBACK | S.FAILED if newer:
            happening = H.SUPERSEDED_UPDATE if runs else H.SUPERSEDED_INSTALL
            yield move(happening, renewed or "a newer revision is wanted", OrderKind.APPLY)
            yield from _lament(desired, instance.node_id, view)
        case S.INSTALLING | S.UPDATING | S.ROLLINGBACK if node.liveness is Liveness.LOST:
            why = f"{node.id} has not been heard for too long"
            yield move(H.GAVE_UP, why, None, Failure(Code.NODE_OFFLINE, f"{why} while it worked on this"))
        case _:
            pass


def _recover(instance: Instance, wanted: Desired, node: Node, view: View, now: datetime) -> Iterator[Move]:
    """Moves for an instance whose newest order has failed, when it is time."""
    failure = instance.failure
    if instance.state is not S.FAILED or failure is None or wanted.revision != instance.revision:
        return
    retried = H.RETRIED_UPDATE if instance.running_revision is not None else H.RETRIED_INSTALL
    if failure.code == Code.NODE_OFFLINE:
        if node.liveness is Liveness.LIVE:
            happening = retried if instance.rejected_revision is None else H.ROLLED_BACK
            yield Move(wanted.id, node.id, happening, f"{node.id} is back", wanted.revision, OrderKind.APPLY)
        return
    if _failed_removing(instance):
        may_try = instance.attempt <= wanted.policy.retries_max and node.liveness is not Liveness.LOST
        if may_try and not _rests(instance, now):
            why = "what could not be removed is wanted, or in the way"
            yield Move(wanted.id, node.id, retried, why, wanted.revision, OrderKind.APPLY)
        return
    if instance.next_at is None or not is_due(instance.next_at, now) or node.liveness is Liveness.LOST:
        return
    following = after_failure(
        instance,
        failure,
        wanted.policy,
        can_go_back=can_go_back(instance, view.past),
        spent_seconds=view.spent.get(instance.key, 0.0),
    )
    if following is None or following.way is Way.GIVE_UP:
        return
    if following.way is Way.RETRY:
        yield Move(wanted.id, node.id, retried, following.why, wanted.revision, OrderKind.APPLY)
    else:
        target = instance.running_revision if instance.rejected_revision is None else instance.revision
        yield Move(wanted.id, node.id, H.ROLLED_BACK, following.why, target, OrderKind.APPLY)


def can_go_back(instance: Instance, past: Mapping[tuple[DeploymentId, Digest], Desired]) -> bool:
    """Whether another release was healthy here before, and is still known."""
    good = instance.running_revision
    return good is not None and good != instance.revision and (instance.deployment_id, good) in past


def _renewed(instance: Instance, desired: Desired, view: View) -> str:
    """Why the secrets call for another order although the file does not; empty when they do not.

    Where one is missing here nothing is renewed: what runs with the value it has, stays.
    """
    if instance.revision != desired.revision or missing(desired.release, view.secrets):
        return ""
    given, now = view.given.get(instance.key, {}), versions_for(desired.release, view.secrets)
    if dict(given) == now:
        return ""
    name = next((name for name in now if given.get(name) != now[name]), "")
    return f"the secret {name} has version {now[name]} now" if name else "a secret is no longer used"


def _lament(desired: Desired, node_id: NodeId, view: View) -> Iterator[Move]:
    """An order that cannot go out for want of a secret has failed, in so many words, until the secret is there."""
    names = missing(desired.release, view.secrets)
    if names:
        message = f"site {desired.site} has no secret {', '.join(names)}"
        failure = Failure(Code.SECRET_MISSING, message)
        yield Move(desired.id, node_id, H.GAVE_UP, message, desired.revision, failure=failure)


def _leave(instance: Instance, view: View, now: datetime, *, why: str) -> Iterator[Move]:
    """Moves that take an instance away, from whatever state it is in."""
    node = view.nodes.get(instance.node_id)
    if instance.state is S.DELETED or _rests(instance, now):
        return
    order = OrderKind.REMOVE if node is not None else None
    if instance.state is not S.DELETING:
        yield Move(instance.deployment_id, instance.node_id, H.UNWANTED, why, instance.revision, order)
    if node is None:
        # Nothing was placed, or the machine is gone for good: nobody else could confirm it.
        done = "nothing was placed" if instance.node_id == UNPLACED else "its node was removed from the site"
        yield Move(instance.deployment_id, instance.node_id, H.REMOVED, done, instance.revision)


def _explain(
    desired: Desired, unplaced: Instance | None, suited: Placed, view: View, now: datetime
) -> Iterator[Move]:
    """Says so where nobody can take an instance, and takes that back when it is no longer true."""
    if unplaced is not None and (not suited.missing or unplaced.revision != desired.revision):
        why = "a newer revision came" if suited.missing else "a node can take it"
        yield from _leave(unplaced, view, now, why=why)
        unplaced = None
    if not suited.missing or unplaced is not None or not view.nodes:
        return  # It is placed, it waits for a node to be heard, or it has been said already.
    failure = Failure(Code.NO_ELIGIBLE_NODE, _lacks(desired, suited))
    yield Move(desired.id, UNPLACED, H.UNPLACEABLE, failure.message, desired.revision, failure=failure, begins=True)


def _lacks(desired: Desired, suited: Placed) -> str:
    some = f"{suited.missing} of {desired.placement.count} instances have no node"
    return f"{some if suited.chosen else 'no node of the site can take it'}: {suited.explain()}"


def _difference(instance: Instance, desired: Desired) -> str:
    return f"its file changed: revision {short(instance.revision)} → {short(desired.revision)}"


def _rests(instance: Instance, now: datetime) -> bool:
    """A clock that was set back does not make it rest for longer."""
    since = now - instance.updated_at
    is_soon = timedelta(0) <= since < timedelta(seconds=REMOVAL_RETRY_SECONDS)
    return instance.state is S.FAILED and _failed_removing(instance) and is_soon


def _failed_removing(instance: Instance) -> bool:
    """Whether what failed last was to take something away: the whole, or a component that an update has no more."""
    code = None if instance.failure is None else instance.failure.code
    return code == Code.REMOVE_FAILED or (code == Code.ENGINE_UNREACHABLE and instance.next_at is None)


def short(revision: Digest | None) -> str:
    """A digest as people see it."""
    return "none" if revision is None else revision.removeprefix("sha256:")[:8]
