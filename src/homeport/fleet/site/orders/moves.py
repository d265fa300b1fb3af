"""The effect of a site's moves: the transitions to record, and the secrets that instances then have."""

from collections.abc import Sequence
from datetime import datetime

from homeport.core.model.deployment import Release
from homeport.core.model.instance import Transition
from homeport.core.reconcile.instances import Key
from homeport.core.reconcile.plan import Move
from homeport.core.secrets import missing, versions_for
from homeport.fleet.site.state import SiteState
from homeport.vocabulary import Actor, Generation, Incarnation, OrderKind


def transition_of(move: Move, memory: SiteState, now: datetime) -> Transition:
    """Assigns the next generation to a move with an order, and the next incarnation to one that begins a life."""
    instance = memory.instances.get((move.deployment_id, move.node_id))
    if move.order is not None:
        memory.generation = Generation(memory.generation + 1)
    if move.begins:
        memory.incarnation = Incarnation(memory.incarnation + 1)
    return Transition(
        deployment_id=move.deployment_id,
        node_id=move.node_id,
        incarnation=memory.incarnation if move.begins or instance is None else instance.incarnation,
        trigger=move.trigger,
        actor=Actor.SITE,
        reason=move.why,
        at=now,
        generation=memory.generation if move.order is not None or instance is None else instance.generation,
        revision=move.revision,
        failure=move.failure,
    )


def given_after(moves: Sequence[Move], memory: SiteState) -> dict[Key, dict[str, int]]:
    """The secrets that each instance was given, once these moves are made."""
    given = dict(memory.given)
    for move in moves:
        release = _release_of(move, memory) if move.order is OrderKind.APPLY else None
        if release is None:
            continue
        versions = {} if missing(release, memory.secrets) else versions_for(release, memory.secrets)
        given.pop((move.deployment_id, move.node_id), None)
        if versions:
            given[move.deployment_id, move.node_id] = versions
    return given


def _release_of(move: Move, memory: SiteState) -> Release | None:
    """The release of a move: the file's, or an older one being rolled back to."""
    desired = memory.desired(move.deployment_id)
    if desired is not None and desired.revision == move.revision:
        return desired.release
    past = None if move.revision is None else memory.past.get((move.deployment_id, move.revision))
    return None if past is None else past.release
