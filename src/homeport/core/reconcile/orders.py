"""The order that stands for an instance's state. It is derived, never stored: whoever lost it gets it again."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from homeport.core.model.deployment import Desired, Policy
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.order import Held, Order, Result
from homeport.core.reconcile.deadline import left_seconds
from homeport.core.reconcile.recovery import Way, after_failure
from homeport.vocabulary import Actor, Code, OrderKind
from homeport.vocabulary import Happening as H
from homeport.vocabulary import State as S

_APPLIED = frozenset({S.INSTALLING, S.UPDATING, S.ROLLINGBACK, S.INSTALLED})


def standing_order(instance: Instance, desired: Desired | None, *, spent_seconds: float = 0.0) -> Order | None:
    """What the instance's node has been told last; None where it has nothing to do. `desired` is what is wanted of
    this instance, which after a rollback is an older revision than the one in Git; `spent_seconds` is what its change
    took before, so that an attempt gets what is left.

    While the file has moved on and the site has not yet, nothing stands: the next plan will say.
    """
    if instance.state is S.DELETING:
        return Order(
            generation=instance.generation,
            deployment_id=instance.deployment_id,
            kind=OrderKind.REMOVE,
            release=None,
            remove_images=desired is not None and desired.remove_images,
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
        )
    return None


def must_hear(order: Order, held: Held | None) -> bool:
    """Whether a node that has just connected needs this order: it lacks it, or has not ended it."""
    return held is None or held.generation != order.generation or held.kind is not order.kind or not held.done


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a site knows besides, when an order has ended. All times are its own: a node's clock may be wrong."""

    now: datetime
    policy: Policy | None = None
    """Without one nothing follows a failure by itself."""
    can_go_back: bool = False
    spent_seconds: float = 0.0
    """What the change has taken, with the order that has ended."""


def outcome(result: Result, instance: Instance, known: Circumstances) -> Transition | None:
    """The step that a node's result means. None for the result of an older order, or one already known."""
    if result.generation != instance.generation:
        return None
    if instance.state is S.INSTALLED and result.kind is OrderKind.APPLY and result.succeeded:
        return None
    failure = _failure(result, instance)
    failure, next_at = (None, None) if failure is None else _aftermath(instance, failure, known)
    reason = _reason(result, failure, instance)
    step = _step(instance, known, _happening(result), Actor.NODE, reason)
    return replace(step, failure=failure, next_at=next_at)


def unanswered(instance: Instance, failure: Failure, known: Circumstances) -> Transition:
    """The step of a site that no longer waits for its node's answer: what follows is what follows any failure."""
    failure, next_at = _aftermath(instance, _plainly(failure, instance), known)
    step = _step(instance, known, H.GAVE_UP, Actor.SITE, failure.message)
    return replace(step, failure=failure, next_at=next_at)


def _step(instance: Instance, known: Circumstances, happening: H, actor: Actor, reason: str) -> Transition:
    return Transition(
        deployment_id=instance.deployment_id,
        node_id=instance.node_id,
        incarnation=instance.incarnation,
        happening=happening,
        actor=actor,
        reason=reason,
        at=known.now,
        generation=instance.generation,
        revision=instance.revision,
    )


def _aftermath(instance: Instance, failure: Failure, known: Circumstances) -> tuple[Failure, datetime | None]:
    """The failure as it is told, and when the site acts again by itself."""
    if known.policy is None or instance.state is S.DELETING:
        return failure, None
    following = after_failure(
        instance, failure, known.policy, can_go_back=known.can_go_back, spent_seconds=known.spent_seconds
    )
    if following is None:
        return failure, None
    if following.way is Way.GIVE_UP:
        return replace(failure, message=f"{failure.message.rstrip('. ')}; {following.why}"), None
    return failure, known.now + timedelta(seconds=following.delay_seconds)


def _failure(result: Result, instance: Instance) -> Failure | None:
    """A failed rollback is said plainly: neither the new release runs nor the one before it."""
    return None if result.failure is None else _plainly(result.failure, instance)


def _plainly(failure: Failure, instance: Instance) -> Failure:
    if instance.state is not S.ROLLINGBACK:
        return failure
    return replace(failure, message=f"Going back failed too: {failure.message}")


def _happening(result: Result) -> H:
    if result.kind is OrderKind.REMOVE:
        return H.REMOVED if result.deleted and result.exit_code == 0 else H.GAVE_UP
    return H.HEALTHY if result.succeeded else H.GAVE_UP


def _reason(result: Result, failure: Failure | None, instance: Instance) -> str:
    if failure is not None:
        return failure.message + _what_runs(result, instance)
    if result.kind is OrderKind.REMOVE:
        return "deleted: true, exit_code: 0" if result.deleted else f"exit_code: {result.exit_code}"
    return "running and healthy" if result.succeeded else Code.INTERNAL


def _what_runs(result: Result, instance: Instance) -> str:
    """A failed update leaves the release before it running, or says that it does not."""
    if result.kind is OrderKind.REMOVE or instance.running_revision in (None, instance.revision):
        return ""
    return " The release before it still runs." if result.release_runs else " The release before it does not run."
