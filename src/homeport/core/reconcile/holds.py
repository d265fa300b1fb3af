"""What a hold keeps from happening: newer revisions, placements and removals wait; repairs and work under way go on.

A hold names one deployment or the whole site. It ends by itself, so nothing has to be remembered to be undone.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

from homeport.core.model.deployment import Hold
from homeport.vocabulary import DeploymentId, NodeId
from homeport.vocabulary import Happening as H

HELD: Final = frozenset(
    {H.SCHEDULED, H.UNPLACEABLE, H.CHANGED, H.SUPERSEDED_INSTALL, H.SUPERSEDED_UPDATE, H.UNWANTED}
)


class Step(Protocol):
    """What is needed of a move to judge it."""

    @property
    def deployment_id(self) -> DeploymentId: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def happening(self) -> H: ...


Moved = TypeVar("Moved", bound=Step)


def active(holds: Iterable[Hold], now: datetime) -> tuple[Hold, ...]:
    return tuple(hold for hold in holds if now < hold.expires_at)


def hold_on(holds: Iterable[Hold], deployment_id: DeploymentId, now: datetime) -> Hold | None:
    """The hold that lasts longest, of those that keep this deployment as it is."""
    ours = [hold for hold in active(holds, now) if hold.deployment_id in (None, deployment_id)]
    return max(ours, key=lambda hold: hold.expires_at, default=None)


def without_held(
    moves: Sequence[Moved], holds: Iterable[Hold], nodes: Collection[NodeId], now: datetime
) -> tuple[Moved, ...]:
    """The moves that may be made now. What follows a withheld step of the same instance is withheld with it.

    An instance on a node that was removed leaves all the same: nothing changes, for there is nothing any more.
    """
    lasting = active(holds, now)
    if not lasting:
        return tuple(moves)
    whole_site = any(hold.deployment_id is None for hold in lasting)
    named = {hold.deployment_id for hold in lasting}
    withheld: set[tuple[DeploymentId, NodeId]] = set()
    made = []
    for move in moves:
        key = move.deployment_id, move.node_id
        gone = move.happening is H.UNWANTED and move.node_id and move.node_id not in nodes
        if (whole_site or move.deployment_id in named) and move.happening in HELD and not gone:
            withheld.add(key)
        if key not in withheld:
            made.append(move)
    return tuple(made)
