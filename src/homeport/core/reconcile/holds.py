"""What a hold prevents: newer revisions, placements and removals wait; repairs and work under way continue.

A hold names one deployment or the whole site. It expires by itself, so it cannot be forgotten.
A manual rollback at the site itself ignores the hold; one requested elsewhere waits like everything else.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

from homeport.core.model.deployment import Hold
from homeport.vocabulary import DeploymentId, Digest, NodeId, SiteName
from homeport.vocabulary import Trigger as H

HELD: Final = frozenset(
    {H.SCHEDULED, H.UNPLACEABLE, H.CHANGED, H.SUPERSEDED_INSTALL, H.SUPERSEDED_UPDATE, H.UNWANTED}
)
BY_HAND: Final = frozenset({H.CHANGED, H.SUPERSEDED_INSTALL, H.SUPERSEDED_UPDATE})
"""What a manual rollback may do under a hold. It starts nothing where nothing was, and removes nothing."""

Target = tuple[DeploymentId, Digest | None]


class HoldableMove(Protocol):
    """The part of a move that holds look at."""

    @property
    def deployment_id(self) -> DeploymentId: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def trigger(self) -> H: ...
    @property
    def revision(self) -> Digest | None: ...


Moved = TypeVar("Moved", bound=HoldableMove)


def active(holds: Iterable[Hold], now: datetime) -> tuple[Hold, ...]:
    return tuple(hold for hold in holds if now < hold.expires_at)


def by_site(holds: Iterable[Hold]) -> dict[SiteName, list[Hold]]:
    found: dict[SiteName, list[Hold]] = {}
    for hold in holds:
        found.setdefault(hold.site, []).append(hold)
    return found


def hold_on(holds: Iterable[Hold], deployment_id: DeploymentId | None, now: datetime) -> Hold | None:
    """The active hold on a deployment that lasts longest; `deployment_id` is None for one that does not exist yet."""
    ours = [hold for hold in active(holds, now) if hold.deployment_id in (None, deployment_id)]
    return max(ours, key=lambda hold: hold.expires_at, default=None)


def hold_text(hold: Hold) -> str:
    """`held until 2026-03-01 20:00 UTC by anna: a shift is running`"""
    return f"held until {hold.expires_at:%Y-%m-%d %H:%M} UTC by {hold.author}: {hold.reason}"


def without_held(
    moves: Sequence[Moved],
    holds: Iterable[Hold],
    nodes: Collection[NodeId],
    now: datetime,
    *,
    by_hand: Collection[Target] = (),
) -> tuple[Moved, ...]:
    """The moves that may be made now. Moves that follow a withheld one of the same instance are withheld with it.

    An instance on a removed node is removed all the same: nothing changes, because the machine is gone.
    `by_hand` are the revisions that operators at the site rolled back to.
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
        gone = move.trigger is H.UNWANTED and move.node_id and move.node_id not in nodes
        meant = move.trigger in BY_HAND and (move.deployment_id, move.revision) in by_hand
        if (whole_site or move.deployment_id in named) and move.trigger in HELD and not (gone or meant):
            withheld.add(key)
        if key not in withheld:
            made.append(move)
    return tuple(made)
