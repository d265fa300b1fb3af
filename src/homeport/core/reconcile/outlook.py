"""What a site would do next, for the operator: what is planned, on hold, waiting, under way, or unchanged."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal

from homeport.core.lifecycle.deployment import IN_FLIGHT
from homeport.core.model.instance import Instance
from homeport.core.reconcile.check import checked_plan
from homeport.core.reconcile.holds import active, hold_on, hold_text
from homeport.core.reconcile.plan import Move, View
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import UNPLACED, DeploymentId, NodeId, State, Trigger

Action = Literal["add", "update", "remove", "wait", "no-op"]
Status = Literal["planned", "held", "under way", "waits", "stays"]

_BY_TRIGGER: Final[dict[Trigger, Action]] = {
    Trigger.SCHEDULED: "add",
    Trigger.RETRIED_INSTALL: "add",
    Trigger.SUPERSEDED_INSTALL: "add",
    Trigger.UNWANTED: "remove",
    Trigger.REMOVED: "remove",
    Trigger.UNPLACEABLE: "wait",
    Trigger.GAVE_UP: "wait",
}
_BY_STATE: Final[dict[State, Action]] = {
    State.INSTALLING: "add",
    State.UPDATING: "update",
    State.ROLLINGBACK: "update",
    State.DELETING: "remove",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """One line of the answer."""

    deployment_id: DeploymentId
    node_id: NodeId
    action: Action
    status: Status
    why: str
    trigger: Trigger | None = None


def outlook(view: View, now: datetime) -> tuple[Expected, ...]:
    """Everything that is wanted or exists, once for each pending step."""
    checked = checked_plan(view, now)
    free = checked_plan(replace(view, holds=()), now) if active(view.holds, now) else checked
    made = set(checked.moves)
    planned = [_planned(move, view, now, is_held=move not in made) for move in _first_moves(free.moves)]
    aside = [Expected(key, UNPLACED, "wait", "waits", why) for key, why in sorted(checked.set_aside.items())]
    moving = {(each.deployment_id, each.node_id) for each in planned}
    return (*planned, *aside, *_unmoved(view, moving))


def _first_moves(moves: Iterable[Move]) -> list[Move]:
    """One line for each instance: its outcome where it fails at once, else its first step."""
    lines: dict[tuple[DeploymentId, NodeId], Move] = {}
    for move in moves:
        key = move.deployment_id, move.node_id
        if key not in lines or move.failure is not None:
            lines[key] = move
    return list(lines.values())


def _planned(move: Move, view: View, now: datetime, *, is_held: bool) -> Expected:
    hold = hold_on(view.holds, move.deployment_id, now) if is_held else None
    why = move.why if hold is None else f"{move.why}; {hold_text(hold)}"
    action = _BY_TRIGGER.get(move.trigger, "update")
    return Expected(move.deployment_id, move.node_id, action, "held" if is_held else "planned", why, move.trigger)


def _unmoved(view: View, moving: set[tuple[DeploymentId, NodeId]]) -> Iterator[Expected]:
    for key, item in sorted(view.instances.items()):
        if key not in moving and item.state is not State.DELETED:
            yield _without_move(item)


def _without_move(item: Instance) -> Expected:
    why = f"{item.state}: {item.step}" if item.step else item.state.value
    if item.state in IN_FLIGHT:
        return Expected(item.deployment_id, item.node_id, _BY_STATE[item.state], "under way", why)
    if item.state is State.FAILED:
        failure = "" if item.failure is None else f": {item.failure.message}"
        again = "" if item.next_at is None else f"; next attempt at {item.next_at:%H:%M:%S} UTC"
        return Expected(item.deployment_id, item.node_id, "wait", "waits", f"{item.state}{failure}{again}")
    return Expected(item.deployment_id, item.node_id, "no-op", "stays", why)
