"""The state of a rollout at one site: derived from what is wanted there, what runs there, and the site's last
contact."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from homeport.core.model.deployment import DEFAULT_POLICY, Hold, Policy
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Instance
from homeport.core.model.rollout import Intent, Member, Rollout
from homeport.core.reconcile.holds import hold_text
from homeport.core.reconcile.recovery import BACKOFF_SECONDS_MAX, NOT_RETRYABLE, WAITS
from homeport.core.values.backoff import BackoffPolicy
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import UNPLACED, Code, NodeId, RolloutSiteStatus, SiteName, State

RETRY_MARGIN_SECONDS: Final = 30.0
"""A failure counts as final when its retry is overdue by this much, whatever the site did."""
MOST_PATIENT: Final = Policy(retries_max=10**9, backoff_seconds=BACKOFF_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class RolloutSiteFacts:
    """What is known about one site, for one deployment name."""

    site: SiteName
    is_reachable: bool
    deployment: Deployment | None = None
    """The wanted deployment of the rollout's name."""
    instances: Sequence[Instance] = ()
    failing_seconds: Mapping[NodeId, float] = field(default_factory=dict)
    """How long central has known each failure. Measured here, because a site's clock may be wrong."""
    is_overtaken: bool = False
    """The wanted deployment was changed after this rollout, by someone else."""
    hold: Hold | None = None
    """The hold on the deployment there."""


def member_of(rollout: Rollout, place: RolloutSiteFacts) -> Member:
    """The state of a site in the rollout, whether it was given the release or not."""
    intent = rollout.intent
    if place.site not in intent.given:
        standing = RolloutSiteStatus.LEFT if place.is_overtaken else RolloutSiteStatus.WAITING
        why = hold_text(place.hold) if place.hold is not None and standing is RolloutSiteStatus.WAITING else ""
        return _member(place, standing, None, why)
    wave = next((number for number, each in enumerate(intent.waves) if place.site in (each.sites or ())), None)
    standing, why = _judge(rollout, place)
    if standing is RolloutSiteStatus.PENDING and not place.is_reachable:
        standing = RolloutSiteStatus.OFFLINE
    elif standing is RolloutSiteStatus.PENDING and place.hold is not None and not _has_begun(place):
        standing, why = RolloutSiteStatus.HELD, hold_text(place.hold)
    return _member(place, standing, wave, why)


def _member(place: RolloutSiteFacts, standing: RolloutSiteStatus, wave: int | None, why: str) -> Member:
    return Member(
        place.site, standing, wave, is_reachable=place.is_reachable, why=why, is_held=place.hold is not None
    )


def _has_begun(place: RolloutSiteFacts) -> bool:
    """A hold does not stop what was under way before it."""
    wanted = place.deployment
    living = [item for item in place.instances if item.state is not State.DELETED]
    return wanted is not None and bool(living) and all(item.revision == wanted.revision for item in living)


def _judge(rollout: Rollout, place: RolloutSiteFacts) -> tuple[RolloutSiteStatus, str]:
    refused = rollout.refused.get(place.site)
    if refused is not None:
        return RolloutSiteStatus.FAILED, refused
    wanted = place.deployment
    if wanted is None:
        return RolloutSiteStatus.LEFT, "it was deleted there"
    if place.is_overtaken:
        return RolloutSiteStatus.LEFT, "something newer was deployed there"
    return _judge_instances(rollout, place, wanted)


def _judge_instances(rollout: Rollout, place: RolloutSiteFacts, wanted: Deployment) -> tuple[RolloutSiteStatus, str]:
    for item in place.instances:
        known_seconds = place.failing_seconds.get(item.node_id, 0.0)
        why = failure_of(item, wanted, _policy(rollout.intent), known_seconds=known_seconds)
        if why is not None:
            return RolloutSiteStatus.FAILED, why
    placed = [item for item in place.instances if item.node_id != UNPLACED and item.state is not State.DELETED]
    runs = bool(placed) and all(item.running_revision == wanted.revision for item in placed)
    if wanted.state is not State.INSTALLED or not runs:
        return RolloutSiteStatus.PENDING, ""
    sick = next((item.unhealthy for item in placed if item.unhealthy is not None), None)
    if sick is not None:
        return RolloutSiteStatus.FAILED, f"it is unhealthy: {sick.why}"
    return RolloutSiteStatus.INSTALLED, ""


def _policy(intent: Intent) -> Policy:
    """The policy at the sites. Where they keep their own, the longest: a site reports itself that it has given up."""
    return intent.policy.over(MOST_PATIENT if intent.keep_values else DEFAULT_POLICY)


def failure_of(item: Instance, wanted: Deployment, policy: Policy, *, known_seconds: float) -> str | None:
    """Why the instance will not reach the wanted release by itself; None while it still may."""
    said = str(item.failure) if item.failure else item.step
    # While it goes back from an older revision, the wanted one is still to come there.
    is_going_back = item.state is State.ROLLINGBACK and item.rejected_revision is None
    if item.rejected_revision == wanted.revision or is_going_back:
        return f"it was rolled back: {said}" if said else "it was rolled back"
    if item.state is not State.FAILED or item.revision not in (wanted.revision, None):
        return None
    return said or "it failed" if _is_final(item, policy, known_seconds) else None


def _is_final(item: Instance, policy: Policy, known_seconds: float) -> bool:
    code = None if item.failure is None else item.failure.code
    # What has no node has none, whether it never ran or its previous release keeps running where it was.
    is_unplaceable = item.node_id == UNPLACED or code == Code.NO_ELIGIBLE_NODE
    if is_unplaceable or code in NOT_RETRYABLE or item.attempt > policy.retries_max:
        return True
    if item.next_at is None and code not in WAITS:
        return True  # Its site does nothing more by itself, for example because the deadline has passed.
    wait = BackoffPolicy(policy.backoff_seconds, BACKOFF_SECONDS_MAX).ceiling_seconds(item.attempt + 1)
    return known_seconds > wait + RETRY_MARGIN_SECONDS


def counts(members: Sequence[Member]) -> Mapping[RolloutSiteStatus, int]:
    found = dict.fromkeys(RolloutSiteStatus, 0)
    for member in members:
        found[member.standing] += 1
    return {standing: count for standing, count in found.items() if count}
