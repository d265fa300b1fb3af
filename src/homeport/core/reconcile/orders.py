"""The order that stands for an instance's state. It is derived, never stored: whoever lost it gets it again."""

from dataclasses import replace
from datetime import timedelta

from homeport.core.model.deployment import Desired, Policy
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.order import Held, Order, Result
from homeport.core.reconcile.recovery import after_failure
from homeport.vocabulary import Actor, Code, Generation, OrderKind
from homeport.vocabulary import Happening as H
from homeport.vocabulary import State as S

_APPLIED = frozenset({S.INSTALLING, S.UPDATING, S.ROLLINGBACK, S.INSTALLED})


def standing_order(instance: Instance, desired: Desired | None) -> Order | None:
    """What the instance's node has been told last; None where it has nothing to do. `desired` is what is wanted of
    this instance, which after a rollback is an older revision than the one in Git.

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
            limit_seconds=desired.policy.deadline_seconds,
        )
    return None


def must_hear(order: Order, held: Held | None) -> bool:
    """Whether a node that has just connected needs this order: it lacks it, or has not ended it."""
    return held is None or held.generation != order.generation or held.kind is not order.kind or not held.done


def outcome(
    result: Result, instance: Instance, policy: Policy | None = None, *, can_go_back: bool = False
) -> Transition | None:
    """The step that a node's result means. None for the result of an older order, or one already known.

    Without a policy nothing follows a failure by itself.
    """
    if result.generation != instance.generation:
        return None
    if instance.state is S.INSTALLED and result.kind is OrderKind.APPLY and result.succeeded:
        return None
    failure = _failure(result, instance)
    following = None
    if failure is not None and policy is not None and result.kind is OrderKind.APPLY:
        following = after_failure(instance, failure, policy, can_go_back=can_go_back)
    return Transition(
        deployment_id=instance.deployment_id,
        node_id=instance.node_id,
        incarnation=instance.incarnation,
        happening=_happening(result),
        actor=Actor.NODE,
        reason=_reason(result, failure, instance),
        at=result.at,
        generation=Generation(result.generation),
        revision=instance.revision,
        failure=failure,
        next_at=None if following is None else result.at + timedelta(seconds=following.delay_seconds),
    )


def _failure(result: Result, instance: Instance) -> Failure | None:
    """A failed rollback is said plainly: neither the new release runs nor the one before it."""
    if result.failure is None or instance.state is not S.ROLLINGBACK:
        return result.failure
    return replace(result.failure, message=f"Going back failed too: {result.failure.message}")


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
