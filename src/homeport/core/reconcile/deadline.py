"""The deadline of a change, retries included, and when a site stops waiting for a node's result.

A change begins with the first order for another revision and ends with the last attempt. It spends the time its
orders were out and the waits between them, on the site's monotonic clock; a rollback is a change of its own and has
as long again. Time in which its node was lost is not counted: then the change waits, and its status says so.
"""

from typing import Final

from homeport.core.lifecycle.deployment import IN_FLIGHT
from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.values.durations import duration_text
from homeport.vocabulary import Code, Liveness, State

REMOVAL_SECONDS: Final = 300.0
"""Timeout for removing one component."""
LEFT_SECONDS_MIN: Final = 1.0


def spent_after(spent: float, before: Instance | None, after: Instance, elapsed_seconds: float) -> float:
    """The time a change has spent once `after` is recorded; `elapsed_seconds` is how long the previous order was
    out."""
    if after.state in IN_FLIGHT:
        return 0.0 if after.attempt <= 1 or before is None else spent + _planned_wait(before)
    if after.state is not State.FAILED or (after.failure is not None and after.failure.code == Code.NODE_OFFLINE):
        return 0.0
    return spent + elapsed_seconds if before is not None and before.state in IN_FLIGHT else spent


def left_seconds(desired: Desired, spent: float) -> float:
    """The time left for the next order."""
    return max(LEFT_SECONDS_MIN, desired.policy.deadline_seconds - spent)


def overdue(
    instance: Instance,
    desired: Desired | None,
    node: Node,
    *,
    waited_seconds: float,
    spent_seconds: float,
    margin_seconds: float,
) -> Failure | None:
    """Why the site gives up on an order that a connected node never answers; None while it still waits."""
    if instance.state not in IN_FLIGHT or desired is None or node.liveness is not Liveness.LIVE:
        return None
    is_removal = instance.state is State.DELETING
    parts = max(1, len(desired.release.components))
    limit = REMOVAL_SECONDS * parts if is_removal else left_seconds(desired, spent_seconds)
    if waited_seconds <= limit + margin_seconds:
        return None
    waited = duration_text(waited_seconds)
    message = f"node {node.id} is there but has not answered for {waited}; {duration_text(limit)} were allowed"
    return Failure(Code.REMOVE_FAILED if is_removal else Code.TIMEOUT, message)


def _planned_wait(failed: Instance) -> float:
    """Both times are from the site's own clock."""
    wait = 0.0 if failed.next_at is None else (failed.next_at - failed.updated_at).total_seconds()
    return max(0.0, wait)
