"""What a site's moves mean for its memory: the transitions to record, and the secrets that instances then have."""

from collections.abc import Sequence
from datetime import datetime

from homeport.core.model.deployment import Release
from homeport.core.model.instance import Transition
from homeport.core.reconcile.plan import Key, Move
from homeport.core.secrets import missing, versions_for
from homeport.fleet.memory import Memory
from homeport.vocabulary import Actor, Generation, Incarnation, OrderKind


def transition_of(move: Move, memory: Memory, now: datetime) -> Transition:
    """Takes the next generation for a move with an order, and the next incarnation for one that begins a life."""
    instance = memory.instances.get((move.deployment_id, move.node_id))
    if move.order is not None:
        memory.generation = Generation(memory.generation + 1)
    if move.begins:
        memory.incarnation = Incarnation(memory.incarnation + 1)
    return Transition(
        deployment_id=move.deployment_id,
        node_id=move.node_id,
        incarnation=memory.incarnation if move.begins or instance is None else instance.incarnation,
        happening=move.happening,
        actor=Actor.SITE,
        reason=move.why,
        at=now,
        generation=memory.generation if move.order is not None or instance is None else instance.generation,
        revision=move.revision,
        failure=move.failure,
    )


def given_after(moves: Sequence[Move], memory: Memory) -> dict[Key, dict[str, int]]:
    """Which secrets each instance has been given, once these moves are made."""
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


def _release_of(move: Move, memory: Memory) -> Release | None:
    """The release that a move brings: the file's, or an older one that is gone back to."""
    desired = memory.desired(move.deployment_id)
    if desired is not None and desired.revision == move.revision:
        return desired.release
    past = None if move.revision is None else memory.past.get((move.deployment_id, move.revision))
    return None if past is None else past.release
