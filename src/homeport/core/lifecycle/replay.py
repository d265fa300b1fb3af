"""Applies one transition to one instance. The site steps its instances with this, and central replays what the site
reported with the same code, so that both always agree on what a transition means. Where the steps were lost, central
copies the instance's current state (ADR 0024).

Pure: it writes nothing and knows no store.
"""

from dataclasses import replace
from datetime import datetime

from homeport.core.lifecycle.deployment import DEPLOYMENT
from homeport.core.lifecycle.machine import Stale
from homeport.core.model.event import HistoryEntry
from homeport.core.model.instance import Failure, Instance, Transition, Unhealthy
from homeport.core.model.order import Progress
from homeport.core.model.report import InstanceSnapshot
from homeport.errors import IllegalTransition
from homeport.vocabulary import Actor, Digest, Generation, State
from homeport.vocabulary import Trigger as H

_NEW_ATTEMPT = frozenset({H.RETRIED_INSTALL, H.RETRIED_UPDATE})
_FIRST_ATTEMPT = frozenset({H.SCHEDULED, H.CHANGED, H.SUPERSEDED_INSTALL, H.SUPERSEDED_UPDATE, H.ROLLED_BACK})


_OTHER_REVISION = frozenset({H.SCHEDULED, H.CHANGED, H.SUPERSEDED_INSTALL, H.SUPERSEDED_UPDATE})


def replay(instance: Instance | None, transition: Transition) -> tuple[Instance, HistoryEntry]:
    """The instance after `transition`, and the line for its history.

    A late event returns the instance unchanged, with the verdict `stale`. Raises IllegalTransition where the table
    has no entry; nothing has changed then. The version returned is the one to write: 1 for a new row, else one
    more than the row that was read.
    """
    if instance is not None and transition.incarnation < instance.incarnation:
        return instance, _entry(transition, instance.state, instance.state, verdict="stale")
    begins = instance is None or transition.incarnation > instance.incarnation
    base = _begin(transition) if instance is None or begins else instance
    verdict = DEPLOYMENT.step(base.state, transition.trigger, transition.actor)
    if isinstance(verdict, Stale):
        return base, _entry(transition, base.state, base.state, verdict="stale")
    return _moved(base, verdict.state, transition), _entry(transition, base.state, verdict.state, verdict="stepped")


def begins_midway(transition: Transition) -> bool:
    """Whether others must have come before it."""
    try:
        DEPLOYMENT.step(DEPLOYMENT.start, transition.trigger, transition.actor)
    except IllegalTransition:
        return True
    return False


def resume(transition: Transition) -> tuple[Instance, HistoryEntry]:
    """The instance after a transition whose predecessors were reported while the deployment was another site's, and
    passed over. Whatever they were, it is known what a trigger leads to."""
    base = _begin(transition)
    state = DEPLOYMENT.after(transition.trigger)
    return _moved(base, state, transition), _entry(transition, base.state, state, verdict="restated")


def apply_snapshot(instance: Instance | None, snapshot: InstanceSnapshot) -> tuple[Instance, HistoryEntry] | None:
    """The instance as its site's snapshot describes it, and one history line for the unknown steps in between.

    None where nothing is new, or where the stored instance has a newer order or life: repeats change nothing, and
    nothing goes backwards.
    """
    now = snapshot.instance
    if instance is not None:
        is_older = (now.incarnation, now.generation) < (instance.incarnation, instance.generation)
        if is_older and not snapshot.replaces:
            return None
        if not snapshot.steps_lost and _comparable(now) == _comparable(instance):
            return None
    begins = instance is None or now.incarnation > instance.incarnation
    return now, HistoryEntry(
        deployment_id=now.deployment_id,
        node_id=now.node_id,
        incarnation=now.incarnation,
        before=DEPLOYMENT.start if begins or instance is None else instance.state,
        after=now.state,
        trigger=H.RESTATED,
        actor=Actor.SITE,
        reason=snapshot.reason or _what_is_missing(snapshot),
        at=now.updated_at,
        revision=now.revision,
        failure=now.failure,
        verdict="restated",
    )


def observe_health(instance: Instance, progress: Progress) -> Instance:
    """The instance after its node reported it unhealthy, or healthy again. The same object where nothing changed: the
    report is about an older order, or known already."""
    if progress.healthy is None or progress.generation != instance.generation:
        return instance
    if progress.healthy:
        return instance if instance.unhealthy is None else replace(instance, unhealthy=None)
    since = progress.at if instance.unhealthy is None else instance.unhealthy.since
    unhealthy = Unhealthy(since, progress.message)
    return instance if instance.unhealthy == unhealthy else replace(instance, unhealthy=unhealthy)


def _comparable(item: Instance) -> Instance:
    """Without the fields that are counted or worded differently at each role."""
    return replace(item, version=0, step="", updated_at=datetime.min)


def _what_is_missing(snapshot: InstanceSnapshot) -> str:
    if not snapshot.steps_lost:
        return "its site restated its state"
    steps = "1 step" if snapshot.steps_lost == 1 else f"{snapshot.steps_lost} steps"
    since = "" if snapshot.since is None else f" since {snapshot.since:%Y-%m-%d %H:%M:%S} UTC"
    return f"{steps}{since} in between {'was' if snapshot.steps_lost == 1 else 'were'} not kept"


def _begin(transition: Transition) -> Instance:
    """A new life is a new row without any history; its first step makes it version 1."""
    return Instance(
        deployment_id=transition.deployment_id,
        node_id=transition.node_id,
        incarnation=transition.incarnation,
        state=DEPLOYMENT.start,
        version=0,
        generation=Generation(0),
        revision=None,
        running_revision=None,
        attempt=0,
        step="",
        failure=None,
        updated_at=transition.at,
    )


def _moved(base: Instance, state: State, transition: Transition) -> Instance:
    return replace(
        base,
        state=state,
        version=base.version + 1,
        generation=Generation(max(base.generation, transition.generation)),
        revision=transition.revision or base.revision,
        running_revision=_running(base, state, transition),
        attempt=_attempt(base, transition),
        step=transition.reason,
        failure=_failure(base, transition),
        updated_at=transition.at,
        rejected_revision=_rejected(base, transition),
        next_at=transition.next_at if state is State.FAILED else None,
        unhealthy=_still_unhealthy(base, transition),
        rejected_for=_rejected_for(base, transition),
    )


def _still_unhealthy(base: Instance, transition: Transition) -> Unhealthy | None:
    """What a node reports of health belongs to its newest order: a newer one forgets it, and nothing else does. A
    connection that broke may bring the order's result last, and an update that no node can take has no order."""
    is_own = transition.trigger is not H.REMOVED and transition.generation == base.generation
    return base.unhealthy if is_own else None


def _running(base: Instance, state: State, transition: Transition) -> Digest | None:
    """The release that runs: the one that became healthy, none once it was removed, be it in part, and otherwise the
    previous one."""
    if state is State.DELETED or (base.state is State.DELETING and transition.trigger is H.GAVE_UP):
        return None
    if transition.trigger is H.HEALTHY:
        return transition.revision or base.revision
    return base.running_revision


def _attempt(base: Instance, transition: Transition) -> int:
    """Of the release that is wanted: a removal is none, also where it fails and the release is wanted again."""
    if transition.trigger is H.UNWANTED:
        return 0
    goes_back_again = transition.trigger is H.ROLLED_BACK and base.revision == transition.revision
    if transition.trigger in _NEW_ATTEMPT or goes_back_again:
        return base.attempt + 1
    return 1 if transition.trigger in _FIRST_ATTEMPT else base.attempt


def _rejected(base: Instance, transition: Transition) -> Digest | None:
    """The revision that was rolled back from stays recorded until another revision is wanted, or none: what comes
    back after that is retried, whether its removal had ended or failed."""
    if transition.trigger is H.UNWANTED:
        return None
    if transition.trigger is H.ROLLED_BACK:
        return base.revision if base.revision != transition.revision else base.rejected_revision
    is_past = transition.trigger in _OTHER_REVISION and not _is_renewed(base, transition)
    return None if is_past else base.rejected_revision


def _rejected_for(base: Instance, transition: Transition) -> Failure | None:
    """Kept as long as the revision that it is about, however often going back from it fails."""
    if _rejected(base, transition) is None:
        return None
    is_first = transition.trigger is H.ROLLED_BACK and base.revision != transition.revision
    return base.failure if is_first else base.rejected_for


def _is_renewed(base: Instance, transition: Transition) -> bool:
    """A changed secret causes another order for the same release that was rolled back to."""
    is_back = base.rejected_revision is not None
    return is_back and transition.trigger in _OTHER_REVISION and transition.revision == base.revision


def _failure(base: Instance, transition: Transition) -> Failure | None:
    """A rollback and a retry keep the failure that caused them; success and a newer order clear it. A finished
    rollback has the failure that began it: it explains why another release runs than the one wanted."""
    if transition.failure is not None:
        return transition.failure
    if _is_renewed(base, transition):
        return base.failure
    if transition.trigger is H.HEALTHY and (base.state is State.ROLLINGBACK or base.rejected_revision is not None):
        return base.rejected_for or base.failure
    if transition.trigger in (H.HEALTHY, H.REMOVED):
        return None
    return base.failure if transition.trigger in (*_NEW_ATTEMPT, H.ROLLED_BACK) else None


def _entry(transition: Transition, before: State, after: State, *, verdict: str) -> HistoryEntry:
    return HistoryEntry(
        deployment_id=transition.deployment_id,
        node_id=transition.node_id,
        incarnation=transition.incarnation,
        before=before,
        after=after,
        trigger=transition.trigger,
        actor=transition.actor,
        reason=transition.reason,
        at=transition.at,
        revision=transition.revision,
        failure=transition.failure,
        verdict=verdict,
    )
