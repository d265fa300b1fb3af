"""What a transition makes of an instance, at its site and again at central."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.lifecycle.replay import apply_snapshot, replay
from homeport.core.model.instance import Failure, Instance, Transition, Unhealthy
from homeport.core.model.report import InstanceSnapshot
from homeport.errors import IllegalTransition
from homeport.vocabulary import Actor, DeploymentId, Digest, Generation, Incarnation, NodeId, State, Trigger

AT = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = Digest("sha256:" + "0" * 64), Digest("sha256:" + "1" * 64)
FAILURE = Failure("HEALTH_CHECK_FAILED", "answered 500", "web")


def transition(trigger: Trigger, actor: Actor = Actor.SITE, **changes: object) -> Transition:
    base = Transition(
        deployment_id=DeploymentId("d"),
        node_id=NodeId("n"),
        incarnation=Incarnation(1),
        trigger=trigger,
        actor=actor,
        reason=f"because {trigger}",
        at=AT,
        generation=Generation(1),
        revision=NEW,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def installed(revision: Digest = NEW) -> Instance:
    installing, _ = replay(None, transition(Trigger.SCHEDULED, revision=revision))
    done, _ = replay(installing, transition(Trigger.HEALTHY, Actor.NODE, revision=revision))
    return done


@pytest.mark.parametrize(("generation", "is_known"), [(1, True), (2, False)])
def test_health_is_forgotten_with_a_newer_order_and_not_without_one(generation: int, is_known: bool) -> None:
    """An update that no node can take has no order: the node goes on watching what runs, with nothing new to say."""
    unwell = replace(installed(OLD), unhealthy=Unhealthy(AT, "web was missing"))
    updating, _ = replay(unwell, transition(Trigger.CHANGED, generation=Generation(generation)))
    failed, _ = replay(
        updating, transition(Trigger.GAVE_UP, generation=Generation(generation), failure=FAILURE, revision=NEW)
    )
    assert (failed.state, failed.unhealthy is not None) == (State.FAILED, is_known)


def test_the_first_transition_makes_a_row_of_version_one() -> None:
    instance, entry = replay(None, transition(Trigger.SCHEDULED))
    assert (instance.state, instance.version, instance.attempt) == (State.INSTALLING, 1, 1)
    assert instance.running_revision is None
    assert (entry.before, entry.after, entry.verdict) == (State.PENDING, State.INSTALLING, "stepped")
    assert entry.reason == "because scheduled"


def test_healthy_makes_the_revision_the_running_one_and_clears_the_failure() -> None:
    failed, _ = replay(
        replay(None, transition(Trigger.SCHEDULED))[0],
        transition(Trigger.GAVE_UP, Actor.NODE, failure=FAILURE),
    )
    retried, _ = replay(failed, transition(Trigger.RETRIED_INSTALL, generation=Generation(2)))
    assert (retried.failure, retried.attempt, retried.generation) == (FAILURE, 2, 2)
    healthy, _ = replay(retried, transition(Trigger.HEALTHY, Actor.NODE, at=AT + timedelta(seconds=1)))
    assert (healthy.state, healthy.running_revision, healthy.failure) == (State.INSTALLED, NEW, None)
    assert (healthy.version, healthy.updated_at) == (4, AT + timedelta(seconds=1))


def test_a_failed_update_keeps_the_running_revision_and_a_rollback_returns_to_it() -> None:
    updating, _ = replay(installed(OLD), transition(Trigger.CHANGED))
    failed, _ = replay(updating, transition(Trigger.GAVE_UP, Actor.NODE, failure=FAILURE))
    assert (failed.revision, failed.running_revision, failed.failure) == (NEW, OLD, FAILURE)
    back, _ = replay(failed, transition(Trigger.ROLLED_BACK, revision=OLD))
    healthy, _ = replay(back, transition(Trigger.HEALTHY, Actor.NODE, revision=OLD))
    assert (healthy.state, healthy.revision, healthy.running_revision) == (State.INSTALLED, OLD, OLD)


def test_what_is_unwanted_is_tried_anew_when_it_comes_back_also_where_its_removal_failed() -> None:
    """Else it would run the older release, with the failure of the removal as the reason."""
    updating, _ = replay(installed(OLD), transition(Trigger.CHANGED))
    failed, _ = replay(updating, transition(Trigger.GAVE_UP, Actor.NODE, failure=FAILURE))
    back, _ = replay(failed, transition(Trigger.ROLLED_BACK, revision=OLD))
    back, _ = replay(back, transition(Trigger.HEALTHY, Actor.NODE, revision=OLD))
    assert (back.rejected_revision, back.failure) == (NEW, FAILURE)
    leaving, _ = replay(back, transition(Trigger.UNWANTED, revision=None))
    refused = Failure("REMOVE_FAILED", "web is busy")
    stays, _ = replay(leaving, transition(Trigger.GAVE_UP, Actor.NODE, revision=None, failure=refused))
    assert (stays.state, stays.running_revision, stays.rejected_revision) == (State.FAILED, None, None)


def test_a_removed_instance_runs_nothing() -> None:
    deleting, _ = replay(installed(), transition(Trigger.UNWANTED))
    deleted, _ = replay(deleting, transition(Trigger.REMOVED, Actor.NODE))
    assert (deleted.state, deleted.running_revision) == (State.DELETED, None)


def test_a_higher_incarnation_begins_a_new_row() -> None:
    deleting, _ = replay(installed(), transition(Trigger.UNWANTED))
    deleted, _ = replay(deleting, transition(Trigger.REMOVED, Actor.NODE))
    again, entry = replay(deleted, transition(Trigger.SCHEDULED, incarnation=Incarnation(2)))
    assert (again.state, again.incarnation, again.version) == (State.INSTALLING, 2, 1)
    assert entry.before is State.PENDING


def test_news_of_an_earlier_life_is_stale() -> None:
    now = replace(installed(), incarnation=Incarnation(3))
    same, entry = replay(now, transition(Trigger.UNWANTED))
    assert same == now
    assert entry.verdict == "stale"


def test_late_news_changes_nothing_and_is_recorded() -> None:
    now = installed()
    same, entry = replay(now, transition(Trigger.HEALTHY, Actor.NODE))
    assert same == now
    assert (entry.verdict, entry.before, entry.after) == ("stale", State.INSTALLED, State.INSTALLED)


def test_what_the_table_does_not_know_is_illegal() -> None:
    with pytest.raises(IllegalTransition):
        replay(None, transition(Trigger.REMOVED, Actor.NODE))


# --- told anew ----------------------------------------------------------------------------------------------------


def test_what_is_told_anew_takes_the_place_of_what_was_known_in_one_line() -> None:
    now = replace(installed(NEW), generation=Generation(9), version=0)
    told = InstanceSnapshot(now, steps_lost=16, since=AT)
    stands = apply_snapshot(installed(OLD), told)
    assert stands is not None
    assert stands[0] == now
    entry = stands[1]
    assert (entry.before, entry.after, entry.verdict) == (State.INSTALLED, State.INSTALLED, "restated")
    assert (entry.actor, entry.trigger) == (Actor.SITE, Trigger.RESTATED)
    assert entry.reason == "16 steps since 2026-01-01 00:00:00 UTC in between were not kept"


def test_an_instance_that_nobody_knew_begins_where_it_stands() -> None:
    stands = apply_snapshot(None, InstanceSnapshot(installed(NEW)))
    assert stands is not None
    assert (stands[1].before, stands[1].after) == (State.PENDING, State.INSTALLED)
    assert stands[1].reason == "its site restated its state"


def test_told_again_it_changes_nothing_whatever_is_worded_differently() -> None:
    known = installed(NEW)
    assert (
        apply_snapshot(known, InstanceSnapshot(replace(known, version=0, step="other words", updated_at=AT))) is None
    )


@pytest.mark.parametrize(("incarnation", "generation"), [(1, 8), (0, 99)])
def test_nothing_that_is_told_anew_goes_backwards(incarnation: int, generation: int) -> None:
    known = replace(installed(NEW), generation=Generation(9))
    older = replace(
        known, incarnation=Incarnation(incarnation), generation=Generation(generation), state=State.FAILED
    )
    assert apply_snapshot(known, InstanceSnapshot(older, steps_lost=3)) is None
