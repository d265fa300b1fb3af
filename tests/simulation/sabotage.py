"""Bugs put into the product itself on purpose, for as long as one story takes. Others are in the machines."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from homeport.central import loops as central_loops
from homeport.core.model.deployment import Desired
from homeport.core.model.node import Node
from homeport.core.model.rollout import Member, Rollout
from homeport.core.placement.choose import Placed, place
from homeport.core.placement.roster import Roster
from homeport.core.reconcile import plan
from homeport.core.reconcile.plan import Move
from homeport.core.rollout.advance import Decision, advance
from homeport.fleet import rollout_loop
from homeport.vocabulary import PlacementMode, Standing
from tests.simulation.world import Sabotage


@contextmanager
def sabotaged(sabotage: Sabotage | None) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, bug in BUGS.get(sabotage, ()) if sabotage else ():
            stack.enter_context(patch.object(module, name, bug))
        yield


def _advance_blindly(rollout: Rollout, members: Sequence[Member]) -> Decision:
    seen = [replace(each, standing=Standing.INSTALLED) if each.wave is not None else each for each in members]
    return advance(rollout, seen)


def _welcome_nobody(*_: object) -> dict[object, object]:
    return {}


def _place_twice(desired: Desired, nodes: Roster | Sequence[Node], *rest: Any) -> Placed:
    if desired.placement.mode is PlacementMode.ONE:
        desired = replace(desired, placement=replace(desired.placement, mode=PlacementMode.COUNT, count=2))
    return place(desired, nodes, *rest)


def _place_on_drained(desired: Desired, nodes: Roster, *rest: Any) -> Placed:
    return place(desired, [replace(slot.node, drain=None) for slot in nodes.slots.values()], *rest)


def _withhold_nothing(moves: Sequence[Move], *_: object, **__: object) -> tuple[Move, ...]:
    return tuple(moves)


def _renew_nothing(*_: object) -> str:
    return ""


async def _settle_nothing(*_: object) -> None:
    pass


BUGS: dict[Sabotage, Sequence[tuple[Any, str, Any]]] = {
    Sabotage.HASTY_ROLLOUT: ((rollout_loop, "advance", _advance_blindly),),
    Sabotage.CLOSED_GROUP: ((rollout_loop, "latecomers", _welcome_nobody),),
    Sabotage.UNWRITTEN_PINS: ((central_loops, "settle_pins", _settle_nothing),),
    Sabotage.STALE_SECRETS: ((plan, "_renewed", _renew_nothing),),
    Sabotage.TWINS: ((plan, "place", _place_twice),),
    Sabotage.DEAF_TO_DRAINS: ((plan, "place", _place_on_drained),),
    Sabotage.DEAF_TO_HOLDS: ((plan, "without_held", _withhold_nothing),),
}
