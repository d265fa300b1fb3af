"""Bugs put into the product itself on purpose, for as long as one story takes. Others are in the machines."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from homeport.central import loops as central_loops
from homeport.core.model.deployment import DEFAULT_POLICY, Desired, Policy
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.model.order import Result
from homeport.core.model.rollout import Member, Rollout
from homeport.core.node.watch import Seen
from homeport.core.placement.choose import Placed
from homeport.core.placement.roster import Roster
from homeport.core.reconcile import orders, plan
from homeport.core.reconcile.demand import place_deployment as place
from homeport.core.reconcile.plan import Move
from homeport.core.reconcile.recovery import NextAttempt, after_failure
from homeport.core.rollout.advance import RolloutDecision, advance
from homeport.errors import TransientError, WorkFailed
from homeport.fleet.central.indexing import update
from homeport.fleet.central.sites import site_starts
from homeport.fleet.shared import snapshot
from homeport.fleet.site.nodes import streams
from homeport.fleet.site.orders import moves
from homeport.fleet.site.reports import outbox
from homeport.jobs.site.board import JobBoard
from homeport.node.orders import executor
from homeport.node.orders.executor import Executor
from homeport.node.watch import health, repair
from homeport.ports import JoinAnswer, Store
from homeport.rollouts import loop
from homeport.vocabulary import PlacementMode, RolloutSiteStatus
from tests.simulation.world import Sabotage


@contextmanager
def sabotaged(sabotage: Sabotage | None) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, bug in BUGS.get(sabotage, ()) if sabotage else ():
            stack.enter_context(patch.object(module, name, bug))
        yield


def _advance_blindly(rollout: Rollout, members: Sequence[Member]) -> RolloutDecision:
    seen = [
        replace(each, standing=RolloutSiteStatus.INSTALLED) if each.wave is not None else each for each in members
    ]
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


def _any_marker(*_: object) -> None:
    pass


def _forget_misnamed(*_: object) -> None:
    pass


def _see_nothing(*_: object) -> dict[str, Seen]:
    return {}


def _say_nothing(*_: object, **__: object) -> Seen:
    return Seen(None)


def _the_same(number: int) -> int:
    return number - 1


async def _see_no_move(_self: object, _tx: object, before: Deployment, *_: object) -> Deployment:
    return before


async def _ask_nobody(*_: object) -> bool:
    return False


async def _send_nothing(*_: object) -> None:
    pass


async def _try_once(take: Callable[[], Awaitable[None]]) -> None:
    with suppress(TransientError):
        await take()


def _are_never_ahead(*_: object) -> bool:
    return False


async def _record_once(self: Executor, result: Result, *, keeps_good: bool) -> None:
    with suppress(WorkFailed):
        await self._journal.finish(result, keeps_good=keeps_good)
        self._outlet.wake()


async def _go_on(joined: JoinAnswer, _epoch: str, store: Store, *_: object) -> None:
    await store.write(lambda tx: tx.dequeue(joined.sequence))


def _follow_the_usual(instance: Instance, failure: Failure, _policy: Policy, **rest: Any) -> NextAttempt | None:
    return after_failure(instance, failure, DEFAULT_POLICY, **rest)


BUGS: dict[Sabotage, Sequence[tuple[Any, str, Any]]] = {
    Sabotage.HASTY_ROLLOUT: ((loop, "advance", _advance_blindly),),
    Sabotage.CLOSED_GROUP: ((loop, "latecomers", _welcome_nobody),),
    Sabotage.UNWRITTEN_PINS: ((central_loops, "settle_pins", _settle_nothing),),
    Sabotage.STALE_SECRETS: ((plan, "_renewed", _renew_nothing),),
    Sabotage.TWINS: ((plan, "place_deployment", _place_twice),),
    Sabotage.DEAF_TO_DRAINS: ((plan, "place_deployment", _place_on_drained),),
    Sabotage.DEAF_TO_HOLDS: ((plan, "without_held", _withhold_nothing),),
    Sabotage.FOREIGN_MARKER: ((snapshot, "check_marker", _any_marker),),
    Sabotage.BLIND_TO_HEALTH: ((health.HealthWatch, "look", _see_nothing),),
    Sabotage.SILENT_REPAIRS: ((repair.RepairLoop, "_seen_broken", _say_nothing),),
    Sabotage.UNSENT_JOBS: ((JobBoard, "connected", _send_nothing),),
    Sabotage.UNNOTICED_MOVES: ((update.CommitUpdate, "_moved", _see_no_move),),
    Sabotage.UNASKED_RESTATEMENTS: ((central_loops, "ask_again", _ask_nobody),),
    Sabotage.UNNOTICED_LOSS: ((outbox, "_continue_from", _go_on),),
    Sabotage.IGNORED_POLICIES: (
        (plan, "after_failure", _follow_the_usual),
        (orders, "after_failure", _follow_the_usual),
    ),
    Sabotage.UNNOTICED_COPIES: ((site_starts.Starts, "are_ahead_of", _are_never_ahead),),
    Sabotage.UNWRITTEN_NEWS: (
        (streams, "_retry_until_written", _try_once),
        (executor.Executor, "_record", _record_once),
    ),
    Sabotage.STUCK_GENERATION: ((moves, "Generation", _the_same),),
    Sabotage.RENAMED_IS_GONE: ((snapshot._Reading, "misnamed", _forget_misnamed),),
}
