"""The current order of an instance. It is derived from its state, never stored, so a lost one can be sent again."""

from dataclasses import replace
from datetime import datetime, timedelta

from homeport.core.lifecycle.deployment import IN_FLIGHT
from homeport.core.model.deployment import Desired, Policy
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.order import Held, Order, Rejection, Result
from homeport.core.node.output import ended
from homeport.core.reconcile.deadline import left_seconds
from homeport.core.reconcile.recovery import Recovery, after_failure
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Actor, Code, OrderKind
from homeport.vocabulary import State as S
from homeport.vocabulary import Trigger as H

_APPLIED = frozenset({S.INSTALLING, S.UPDATING, S.ROLLINGBACK, S.INSTALLED})


def current_order(
    instance: Instance, desired: Desired | None, *, spent_seconds: float = 0.0, remove_data: bool = False
) -> Order | None:
    """The newest order for the instance's node; None where there is nothing to do. `desired` is what is wanted of
    this instance, which after a rollback is an older revision than the one in Git; `spent_seconds` is the time its
    change has taken, so that an attempt gets the rest.

    None also while the file has changed and the site has not planned it yet: the next plan decides.
    """
    if instance.state is S.DELETING:
        return Order(
            generation=instance.generation,
            deployment_id=instance.deployment_id,
            kind=OrderKind.REMOVE,
            release=None,
            remove_images=desired is not None and desired.remove_images,
            remove_data_of=desired.name if remove_data and desired is not None else "",
            reason=instance.step,
        )
    if instance.state in _APPLIED and desired is not None and desired.revision == instance.revision:
        return Order(
            generation=instance.generation,
            deployment_id=instance.deployment_id,
            kind=OrderKind.APPLY,
            release=desired.release,
            reason=instance.step,
            limit_seconds=left_seconds(desired, spent_seconds),
            on_unhealthy=desired.policy.on_unhealthy,
            rejection=_rejection(instance),
        )
    return None


def _rejection(instance: Instance) -> Rejection | None:
    rejected = instance.rejected_revision
    return None if rejected is None else Rejection(rejected, instance.rejected_for or instance.failure)


def needs_order(order: Order, held: Held | None, state: S) -> bool:
    """Whether a node that has just connected needs this order: it does not have it, has not finished it, or its
    result may be lost, because a site that still waits may have been restored from an older copy."""
    if held is None or held.generation != order.generation or held.kind is not order.kind:
        return True
    return not held.done or state in IN_FLIGHT


def lost_its_secret(instance: Instance, order: Order, held: Held | None) -> bool:
    """Whether an order that cannot be sent because a secret is missing never reached its node: the secret was removed
    between the decision and the node's return, and no result would ever arrive."""
    never_came = held is None or held.generation != order.generation
    return instance.state in (S.INSTALLING, S.UPDATING, S.ROLLINGBACK) and never_came


@dataclass(frozen=True, slots=True)
class OrderContext:
    """Further facts a site has when an order ends. All times are the site's own: a node's clock may be wrong."""

    now: datetime
    policy: Policy | None = None
    """None: nothing happens automatically after a failure."""
    can_roll_back: bool = False
    spent_seconds: float = 0.0
    """The time the change has taken, including the order that has ended."""


def outcome(result: Result, instance: Instance, known: OrderContext) -> tuple[Transition, ...]:
    """The transitions that a node's result causes. None for the result of an older order, or a repeated one."""
    if result.generation != instance.generation:
        return ()
    if instance.state is S.INSTALLED and result.kind is OrderKind.APPLY:
        return () if result.succeeded else _lost_and_failed(result, instance, known)
    failure = _failure(result, instance)
    failure, next_at = (None, None) if failure is None else _failure_and_retry(instance, failure, known)
    reason = _reason(result, failure, instance)
    step = _step(instance, known, _happening(result), Actor.NODE, reason)
    return (replace(step, failure=failure, next_at=next_at),)


def _lost_and_failed(result: Result, instance: Instance, known: OrderContext) -> tuple[Transition, ...]:
    """A node that was restored from an older copy of its folder was sent an installed release again, and could not
    apply it. It keeps nothing running by itself then, so this is an update that failed, with its retries."""
    why = f"{instance.node_id} had lost this release and applied it again"
    again = _step(instance, known, H.CHANGED, Actor.SITE, why)
    return again, *outcome(result, replace(instance, state=S.UPDATING, attempt=1), known)


def unanswered(instance: Instance, failure: Failure, known: OrderContext) -> Transition:
    """The transition of a site that stops waiting for its node's result: handled like any other failure."""
    failure, next_at = _failure_and_retry(instance, _with_rollback_note(failure, instance), known)
    step = _step(instance, known, H.GAVE_UP, Actor.SITE, failure.message)
    return replace(step, failure=failure, next_at=next_at)


def _step(instance: Instance, known: OrderContext, trigger: H, actor: Actor, reason: str) -> Transition:
    return Transition(
        deployment_id=instance.deployment_id,
        node_id=instance.node_id,
        incarnation=instance.incarnation,
        trigger=trigger,
        actor=actor,
        reason=reason,
        at=known.now,
        generation=instance.generation,
        revision=instance.revision,
    )


def _failure_and_retry(instance: Instance, failure: Failure, known: OrderContext) -> tuple[Failure, datetime | None]:
    """The failure to record, and when the site acts again by itself."""
    if known.policy is None or instance.state is S.DELETING:
        return failure, None
    following = after_failure(
        instance, failure, known.policy, can_roll_back=known.can_roll_back, spent_seconds=known.spent_seconds
    )
    if following is None:
        return failure, None
    if following.recovery is Recovery.GIVE_UP:
        return replace(failure, message=f"{failure.message.rstrip('. ')}; {following.why}"), None
    return failure, known.now + timedelta(seconds=following.delay_seconds)


def _failure(result: Result, instance: Instance) -> Failure | None:
    """States that a rollback failed: neither the new release runs nor the one before it. A removal that failed is
    known by its code, whatever kept it: what it has left counts neither as running nor as wanted."""
    if result.failure is not None and result.kind is OrderKind.REMOVE:
        return replace(result.failure, code=Code.REMOVE_FAILED)
    return None if result.failure is None else _with_rollback_note(result.failure, instance)


def _with_rollback_note(failure: Failure, instance: Instance) -> Failure:
    if instance.state is not S.ROLLINGBACK:
        return failure
    return replace(failure, message=f"Going back failed too: {failure.message}")


def _happening(result: Result) -> H:
    if result.kind is OrderKind.REMOVE:
        return H.REMOVED if result.deleted and result.exit_code == 0 else H.GAVE_UP
    return H.HEALTHY if result.succeeded else H.GAVE_UP


def _reason(result: Result, failure: Failure | None, instance: Instance) -> str:
    if failure is not None:
        what_runs = _what_runs(result, instance)
        return f"{ended(failure.message)}{what_runs}" if what_runs else failure.message
    if result.kind is OrderKind.REMOVE:
        return "removed from its node" if result.deleted else f"the removal ended with code {result.exit_code}"
    return "running and healthy" if result.succeeded else Code.INTERNAL


def _what_runs(result: Result, instance: Instance) -> str:
    """Whether the previous release still runs after a failed update, as part of the sentence."""
    if result.kind is OrderKind.REMOVE or instance.running_revision in (None, instance.revision):
        return ""
    return " The release before it still runs." if result.release_runs else " The release before it does not run."
