"""What has become of a rollout at one site: read from what is wanted there, what runs there, and when the site was
last heard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from homeport.core.model.deployment import Hold, Policy
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Instance
from homeport.core.model.rollout import Member, Rollout
from homeport.core.reconcile.holds import hold_text
from homeport.core.reconcile.recovery import BACKOFF_SECONDS_MAX, HOPELESS, WAITS
from homeport.vocabulary import UNPLACED, NodeId, SiteName, Standing, State

RETRY_MARGIN_SECONDS: Final = 30.0
"""A failure is taken for final when its retry is overdue by this much, whatever became of it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of one site, for one deployment name."""

    site: SiteName
    is_reachable: bool
    deployment: Deployment | None = None
    """The one that is wanted there under the rollout's name."""
    instances: Sequence[Instance] = ()
    failing_seconds: Mapping[NodeId, float] = field(default_factory=dict)
    """For how long central has known of each that has failed. Measured, for a site's clock may be wrong."""
    is_overtaken: bool = False
    """What is wanted there was written after this rollout, by somebody else."""
    hold: Hold | None = None
    """What keeps the deployment there as it is for now."""


def member_of(rollout: Rollout, place: Place) -> Member:
    """A site of the rollout as it stands, given or not."""
    intent = rollout.intent
    if place.site not in intent.given:
        standing = Standing.LEFT if place.is_overtaken else Standing.WAITING
        why = hold_text(place.hold) if place.hold is not None and standing is Standing.WAITING else ""
        return _member(place, standing, None, why)
    wave = next((number for number, each in enumerate(intent.waves) if place.site in (each.sites or ())), None)
    standing, why = _judge(rollout, place)
    if standing is Standing.PENDING and not place.is_reachable:
        standing = Standing.OFFLINE
    elif standing is Standing.PENDING and place.hold is not None and not _has_begun(place):
        standing, why = Standing.HELD, hold_text(place.hold)
    return _member(place, standing, wave, why)


def _member(place: Place, standing: Standing, wave: int | None, why: str) -> Member:
    return Member(
        place.site, standing, wave, is_reachable=place.is_reachable, why=why, is_held=place.hold is not None
    )


def _has_begun(place: Place) -> bool:
    """A hold keeps nothing from going on that was under way before it."""
    wanted = place.deployment
    living = [item for item in place.instances if item.state is not State.DELETED]
    return wanted is not None and bool(living) and all(item.revision == wanted.revision for item in living)


def _judge(rollout: Rollout, place: Place) -> tuple[Standing, str]:
    refused = rollout.refused.get(place.site)
    if refused is not None:
        return Standing.FAILED, refused
    wanted = place.deployment
    if wanted is None:
        return Standing.LEFT, "it was deleted there"
    if place.is_overtaken:
        return Standing.LEFT, "something newer was deployed there"
    for item in place.instances:
        known_seconds = place.failing_seconds.get(item.node_id, 0.0)
        why = failure_of(item, wanted, rollout.intent.policy, known_seconds=known_seconds)
        if why is not None:
            return Standing.FAILED, why
    placed = [item for item in place.instances if item.node_id != UNPLACED and item.state is not State.DELETED]
    runs = bool(placed) and all(item.running_revision == wanted.revision for item in placed)
    if wanted.state is State.INSTALLED and runs:
        return Standing.INSTALLED, ""
    return Standing.PENDING, ""


def failure_of(item: Instance, wanted: Deployment, policy: Policy, *, known_seconds: float) -> str | None:
    """Why the instance will not get to what is wanted by itself; None while it still may."""
    said = f"{item.failure.message} ({item.failure.code})" if item.failure else item.step
    if item.rejected_revision == wanted.revision or item.state is State.ROLLINGBACK:
        return f"it was rolled back: {said}" if said else "it was rolled back"
    if item.state is not State.FAILED or item.revision not in (wanted.revision, None):
        return None
    return said or "it failed" if _is_final(item, policy, known_seconds) else None


def _is_final(item: Instance, policy: Policy, known_seconds: float) -> bool:
    is_hopeless = item.failure is not None and item.failure.code in HOPELESS
    if is_hopeless or item.node_id == UNPLACED or item.attempt > policy.retries_max:
        return True
    if item.next_at is None and (item.failure is None or item.failure.code not in WAITS):
        return True  # Its site does nothing more by itself: the deadline has passed, say.
    wait = min(policy.backoff_seconds * 2.0 ** min(item.attempt, 30), BACKOFF_SECONDS_MAX) + RETRY_MARGIN_SECONDS
    return known_seconds > wait


def counts(members: Sequence[Member]) -> Mapping[Standing, int]:
    found = dict.fromkeys(Standing, 0)
    for member in members:
        found[member.standing] += 1
    return {standing: count for standing, count in found.items() if count}
