"""A rollout as shown to users: the number of sites in each state, by wave and in total, and the failures."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from homeport.core.model.rollout import Member, Rollout
from homeport.core.rollout.advance import advance
from homeport.fleet.central.platform import CentralPlatform
from homeport.lazy_dataclass import dataclass
from homeport.ports import SeenReader
from homeport.rollouts.survey import look
from homeport.vocabulary import RolloutId, RolloutSiteStatus, RolloutState


@dataclass(frozen=True, slots=True)
class RolloutView:
    rollout: Rollout
    members: tuple[Member, ...]
    note: str
    """Why it is in this state, or what it waits for."""
    bake_ends_at: datetime | None


async def view_rollouts(
    reader: SeenReader, rollouts: Sequence[Rollout], central: CentralPlatform
) -> list[RolloutView]:
    now = central.clock.now()
    members: dict[RolloutId, tuple[Member, ...]] = {}
    for name in sorted({rollout.intent.name for rollout in rollouts}):
        ids = [rollout.intent.id for rollout in rollouts if rollout.intent.name == name]
        survey = await look(
            reader,
            central.git_writer.git,
            name,
            reachability=central.reachability,
            sightings=central.sightings,
            clock=central.clock,
            only=ids,
        )
        members.update(survey.members)
    return [_view(rollout, members.get(rollout.intent.id, ()), now) for rollout in rollouts]


def _view(rollout: Rollout, members: Sequence[Member], now: datetime) -> RolloutView:
    is_open = rollout.state in (RolloutState.RUNNING, RolloutState.PAUSED, RolloutState.STOPPED)
    shown = tuple(member for member in members if is_open or member.standing is not RolloutSiteStatus.WAITING)
    note, ends_at = rollout.problem or rollout.reason, None
    if rollout.state is RolloutState.RUNNING and rollout.problem is None:
        note = advance(rollout, members).why
        if rollout.watched_seconds is not None:
            ends_at = now + timedelta(seconds=rollout.intent.bake_seconds - rollout.watched_seconds)
    return RolloutView(rollout, shown, note, ends_at)
