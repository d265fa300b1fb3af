"""One transition applied to one instance. The site steps its instances with this, and central replays what the
site reported with the same code, so that both always agree on what a transition means. Where the steps were lost,
central copies how the instance stands (ADR 0024).

It decides; it writes nothing and knows no store.
"""

from dataclasses import replace
from datetime import datetime

from homeport.core.lifecycle.deployment import DEPLOYMENT
from homeport.core.lifecycle.machine import Stale
from homeport.core.model.event import HistoryEntry
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.report import Restated
from homeport.vocabulary import Actor, Digest, Generation, State
from homeport.vocabulary import Happening as H

_NEW_ATTEMPT = frozenset({H.RETRIED_INSTALL, H.RETRIED_UPDATE})
_FIRST_ATTEMPT = frozenset(
    {H.SCHEDULED, H.CHANGED, H.SUPERSEDED_INSTALL, H.SUPERSEDED_UPDATE, H.ROLLED_BACK, H.UNWANTED}
)


_OTHER_REVISION = frozenset({H.SCHEDULED, H.CHANGED, H.SUPERSEDED_INSTALL, H.SUPERSEDED_UPDATE})


def replay(instance: Instance | None, transition: Transition) -> tuple[Instance, HistoryEntry]:
    """The instance after `transition`, and the line for its history.

    Late news returns the instance as it was, with the verdict `stale`. Raises IllegalTransition where the table
    is silent; nothing has changed then. The version returned is the one to write: 1 for a new row, else one
    more than the row that was read.
    """
    if instance is not None and transition.incarnation < instance.incarnation:
        return instance, _entry(transition, instance.state, instance.state, verdict="stale")
    begins = instance is None or transition.incarnation > instance.incarnation
    base = _begin(transition) if instance is None or begins else instance
    verdict = DEPLOYMENT.step(base.state, transition.happening, transition.actor)
    if isinstance(verdict, Stale):
        return base, _entry(transition, base.state, base.state, verdict="stale")
    return _moved(base, verdict.state, transition), _entry(transition, base.state, verdict.state, verdict="stepped")


def restate(instance: Instance | None, told: Restated) -> tuple[Instance, HistoryEntry] | None:
    """The instance as its site says that it stands, and one line for all that is not known in between.

    None where nothing is new, or what is known is of a newer order or life: said again, it changes nothing, and
    nothing goes backwards.
    """
    now = told.instance
    if instance is not None:
        if (now.incarnation, now.generation) < (instance.incarnation, instance.generation):
            return None
        if not told.steps_lost and _standing(now) == _standing(instance):
            return None
    return now, HistoryEntry(
        deployment_id=now.deployment_id,
        node_id=now.node_id,
        incarnation=now.incarnation,
        before=DEPLOYMENT.start if instance is None else instance.state,
        after=now.state,
        happening=H.RESTATED,
        actor=Actor.SITE,
        reason=_what_is_missing(told),
        at=now.updated_at,
        revision=now.revision,
        failure=now.failure,
        verdict="restated",
    )


def _standing(item: Instance) -> Instance:
    """Without what is counted or worded differently at each place."""
    return replace(item, version=0, step="", updated_at=datetime.min)


def _what_is_missing(told: Restated) -> str:
    if not told.steps_lost:
        return "its site says anew how it stands"
    steps = "1 step" if told.steps_lost == 1 else f"{told.steps_lost} steps"
    since = "" if told.since is None else f" since {told.since:%Y-%m-%d %H:%M:%S} UTC"
    return f"{steps}{since} in between {'was' if told.steps_lost == 1 else 'were'} not kept"


def _begin(transition: Transition) -> Instance:
    """A new life is a new row, of which nothing is known yet; its first step makes it version 1."""
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
    )


def _running(base: Instance, state: State, transition: Transition) -> Digest | None:
    """The release that runs: what turned healthy, nothing once removed, and otherwise what ran before."""
    if state is State.DELETED:
        return None
    if transition.happening is H.HEALTHY:
        return transition.revision or base.revision
    return base.running_revision


def _attempt(base: Instance, transition: Transition) -> int:
    goes_back_again = transition.happening is H.ROLLED_BACK and base.revision == transition.revision
    if transition.happening in _NEW_ATTEMPT or goes_back_again:
        return base.attempt + 1
    return 1 if transition.happening in _FIRST_ATTEMPT else base.attempt


def _rejected(base: Instance, transition: Transition) -> Digest | None:
    """What was rolled back from stays remembered until another revision is wanted."""
    if transition.happening is H.ROLLED_BACK:
        return base.revision if base.revision != transition.revision else base.rejected_revision
    is_past = transition.happening in _OTHER_REVISION and not _is_renewed(base, transition)
    return None if is_past else base.rejected_revision


def _is_renewed(base: Instance, transition: Transition) -> bool:
    """A changed secret gives another order for the very release that was gone back to."""
    is_back = base.rejected_revision is not None
    return is_back and transition.happening in _OTHER_REVISION and transition.revision == base.revision


def _failure(base: Instance, transition: Transition) -> Failure | None:
    """A rollback and a retry keep what they answer to; success and a newer order clear it. What was rolled back keeps
    the failure it was rolled back for: that is why another release runs than the one wanted."""
    if transition.failure is not None:
        return transition.failure
    if _is_renewed(base, transition):
        return base.failure
    if transition.happening is H.HEALTHY and (base.state is State.ROLLINGBACK or base.rejected_revision is not None):
        return base.failure
    if transition.happening in (H.HEALTHY, H.REMOVED):
        return None
    return base.failure if transition.happening in (*_NEW_ATTEMPT, H.ROLLED_BACK) else None


def _entry(transition: Transition, before: State, after: State, *, verdict: str) -> HistoryEntry:
    return HistoryEntry(
        deployment_id=transition.deployment_id,
        node_id=transition.node_id,
        incarnation=transition.incarnation,
        before=before,
        after=after,
        happening=transition.happening,
        actor=transition.actor,
        reason=transition.reason,
        at=transition.at,
        revision=transition.revision,
        failure=transition.failure,
        verdict=verdict,
    )
