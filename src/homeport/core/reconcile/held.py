"""What a site takes over from a node's journal, where that is newer than the site's own database.

Only a site assigns generations, so a node with a newer one has received orders that this site has lost: its database
was deleted, or is an older copy. Then the node's state is adopted: what it runs stays, what was rolled back stays
rolled back, and planning continues from there.
"""

from dataclasses import replace
from datetime import datetime

from homeport.core.model.instance import Failure, Instance, RecordedRollback
from homeport.core.model.order import Held
from homeport.vocabulary import Code, Digest, Generation, Incarnation, NodeId, OrderKind
from homeport.vocabulary import State as S

REASON = "its node holds a newer order than this site remembers"
REMEMBERED = "central remembers that this revision was rolled back here"


def recognise(
    held: Held,
    node_id: NodeId,
    instance: Instance | None,
    wanted: Digest | None,
    *,
    next_incarnation: Incarnation,
    is_new_site: bool,
    now: datetime,
) -> Instance | None:
    """The instance as its node holds it; None where the site knows as much, or where nothing follows from it.

    `wanted` is the revision in Git, if any. Of instances unknown to the site it adopts only what it must: all, where
    its database is new; else only a rollback of the very revision it would order.
    """
    if instance is not None and not _knows_more(held, instance):
        return None
    if instance is None and not _must_take_over(held, wanted, is_new_site=is_new_site):
        return None
    return Instance(
        deployment_id=held.deployment_id,
        node_id=node_id,
        incarnation=next_incarnation if instance is None else instance.incarnation,
        state=_state(held),
        version=0 if instance is None else instance.version,
        generation=held.generation,
        revision=held.revision or (None if instance is None else instance.revision),
        running_revision=held.good_revision,
        attempt=1,
        step=REASON,
        failure=None if held.rejection is None else held.rejection.failure,
        updated_at=now,
        rejected_revision=None if held.rejection is None else held.rejection.revision,
        rejected_for=None if held.rejection is None else held.rejection.failure,
    )


def restore_rollback(
    rollback: RecordedRollback,
    instance: Instance | None,
    wanted: Digest | None,
    *,
    next_generation: Generation,
    next_incarnation: Incarnation,
    now: datetime,
) -> Instance | None:
    """The instance with a rollback that only central has recorded; None where it does not apply: Git wants another
    revision by now, site or node have a newer state, or the revision runs well here."""
    if wanted != rollback.revision:
        return None
    if instance is None:
        return Instance(
            deployment_id=rollback.deployment_id,
            node_id=rollback.node_id,
            incarnation=next_incarnation,
            state=S.ROLLINGBACK,
            version=0,
            generation=next_generation,
            revision=rollback.good_revision,
            running_revision=rollback.good_revision,
            attempt=1,
            step=REMEMBERED,
            failure=rollback.failure,
            updated_at=now,
            rejected_revision=rollback.revision,
            rejected_for=rollback.failure,
        )
    is_known = instance.rejected_revision is not None or instance.running_revision == rollback.revision
    if is_known or instance.state in (S.DELETING, S.DELETED):
        return None
    if instance.state is S.INSTALLED:
        is_back = instance.revision == rollback.good_revision
        rejected = replace(instance, rejected_revision=rollback.revision, rejected_for=rollback.failure)
        return replace(rejected, failure=rollback.failure) if is_back else None
    return replace(
        instance,
        state=S.ROLLINGBACK,
        generation=next_generation,
        revision=rollback.good_revision,
        running_revision=instance.running_revision or rollback.good_revision,
        attempt=1,
        step=REMEMBERED,
        failure=rollback.failure,
        updated_at=now,
        rejected_revision=rollback.revision,
        rejected_for=rollback.failure,
        next_at=None,
    )


def without_release(instance: Instance) -> Instance:
    """Nothing is applied where the release that was rolled back to is no longer in Git."""
    rejected = (instance.rejected_revision or "").removeprefix("sha256:")[:8]
    why = (
        f"revision {rejected} was rolled back here, and the one before it is not in Git any more: "
        "commit another one, or ask for a retry"
    )
    code = Code.INTERNAL if instance.failure is None else instance.failure.code
    return replace(instance, state=S.FAILED, step=why, failure=Failure(code, why))


def _knows_more(held: Held, instance: Instance) -> bool:
    """Whether the node has received an order that the site has lost: a newer one, or another one with the same
    generation, which an older copy of the database assigns a second time before the node connects."""
    if held.generation != instance.generation:
        return held.generation > instance.generation
    if instance.state is S.DELETING:
        return held.kind is not OrderKind.REMOVE
    if instance.state is S.FAILED:
        return False  # Its revision may be one that was never ordered.
    return held.kind is not OrderKind.APPLY or held.revision not in (None, instance.revision)


def _must_take_over(held: Held, wanted: Digest | None, *, is_new_site: bool) -> bool:
    if held.kind is OrderKind.REMOVE or wanted is None:
        return False  # What is not wanted is an orphan, and what is gone needs no instance.
    return is_new_site or (held.rejection is not None and held.rejection.revision == wanted)


def _state(held: Held) -> S:
    """Where the outcome is unknown the instance counts as under way, and the order is sent again."""
    if held.kind is OrderKind.REMOVE:
        return S.DELETED if held.done else S.DELETING
    if held.done and not held.failed and held.good_revision == held.revision:
        return S.INSTALLED
    if held.rejection is not None:
        return S.ROLLINGBACK
    return S.INSTALLING if held.good_revision is None else S.UPDATING
