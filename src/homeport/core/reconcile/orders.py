"""The order that stands for an instance's state. It is derived, never stored: whoever lost it gets it again."""

from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.order import Held, Order, Result
from homeport.vocabulary import Actor, Code, Generation, OrderKind
from homeport.vocabulary import Happening as H
from homeport.vocabulary import State as S

_APPLIED = frozenset({S.INSTALLING, S.UPDATING, S.INSTALLED})


def standing_order(instance: Instance, desired: Desired | None) -> Order | None:
    """What the instance's node has been told last; None where it has nothing to do.

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
        )
    return None


def must_hear(order: Order, held: Held | None) -> bool:
    """Whether a node that has just connected needs this order: it lacks it, or has not ended it."""
    return held is None or held.generation != order.generation or held.kind is not order.kind or not held.done


def outcome(result: Result, instance: Instance) -> Transition | None:
    """The step that a node's result means. None for the result of an older order, or one already known."""
    if result.generation != instance.generation:
        return None
    if instance.state is S.INSTALLED and result.kind is OrderKind.APPLY and result.succeeded:
        return None
    return Transition(
        deployment_id=instance.deployment_id,
        node_id=instance.node_id,
        incarnation=instance.incarnation,
        happening=_happening(result),
        actor=Actor.NODE,
        reason=_reason(result),
        at=result.at,
        generation=Generation(result.generation),
        revision=instance.revision,
        failure=result.failure,
    )


def _happening(result: Result) -> H:
    if result.kind is OrderKind.REMOVE:
        return H.REMOVED if result.deleted and result.exit_code == 0 else H.GAVE_UP
    return H.HEALTHY if result.succeeded else H.GAVE_UP


def _reason(result: Result) -> str:
    if result.failure is not None:
        return result.failure.message
    if result.kind is OrderKind.REMOVE:
        return "deleted: true, exit_code: 0" if result.deleted else f"exit_code: {result.exit_code}"
    return "running and healthy" if result.succeeded else Code.INTERNAL
