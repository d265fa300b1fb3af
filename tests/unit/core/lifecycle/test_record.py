"""A batch of transitions becomes rows, history and events; what the table refuses spoils nobody else."""

from dataclasses import replace

from homeport.core.lifecycle.record import record
from homeport.core.model.instance import Failure, Transition, Unhealthy
from homeport.vocabulary import Actor, Code, Digest, EventKind, Generation, Incarnation, NodeId, State, Trigger
from tests.support.builders import NOW, a_deployment, an_instance, deployment_id, revision


def a_transition(trigger: Trigger, *, number: int = 1, node: str = "one", actor: Actor = Actor.SITE) -> Transition:
    return Transition(
        deployment_id=deployment_id(number),
        node_id=NodeId(node),
        incarnation=Incarnation(3),
        trigger=trigger,
        actor=actor,
        reason="because",
        at=NOW,
        generation=Generation(8),
        revision=revision("first"),
        failure=Failure(Code.CREATE_FAILED, "port taken") if trigger is Trigger.GAVE_UP else None,
    )


def test_a_whole_install_in_one_batch_is_one_row_with_two_lines_of_history() -> None:
    recorded = record(
        {},
        {deployment_id(): a_deployment()},
        [a_transition(Trigger.SCHEDULED), a_transition(Trigger.HEALTHY, actor=Actor.NODE)],
        NOW,
    )
    (instance,) = recorded.instances
    assert (instance.state, instance.version) == (State.INSTALLED, 1)
    assert [entry.after for entry in recorded.history] == [State.INSTALLING, State.INSTALLED]
    (deployment,) = recorded.deployments
    assert (deployment.state, deployment.version) == (State.INSTALLED, 2)
    kinds = [event.kind for event in recorded.events]
    assert kinds == [EventKind.INSTANCE_STATE, EventKind.INSTANCE_STATE, EventKind.DEPLOYMENT_STATE]


def test_a_known_row_moves_by_one_version_however_many_steps_it_took() -> None:
    known = an_instance(state=State.INSTALLED)
    recorded = record(
        {known.key: known},
        {deployment_id(): a_deployment(state=State.INSTALLED)},
        [a_transition(Trigger.CHANGED), a_transition(Trigger.HEALTHY, actor=Actor.NODE)],
        NOW,
    )
    assert [instance.version for instance in recorded.instances] == [known.version + 1]
    assert recorded.deployments == ()


def test_a_refused_transition_is_told_and_the_others_go_on() -> None:
    first, second = an_instance(1), an_instance(2, state=State.INSTALLING)
    recorded = record(
        {first.key: first, second.key: second},
        {
            deployment_id(1): a_deployment(1, state=State.INSTALLED),
            deployment_id(2): a_deployment(2, state=State.INSTALLING),
        },
        [a_transition(Trigger.SCHEDULED, number=1), a_transition(Trigger.HEALTHY, number=2, actor=Actor.NODE)],
        NOW,
    )
    assert [transition.deployment_id for transition, _ in recorded.refused] == [deployment_id(1)]
    assert [instance.deployment_id for instance in recorded.instances] == [deployment_id(2)]
    assert recorded.events[0].kind is EventKind.DEPLOYMENT_REFUSED


def test_a_transition_of_an_unknown_deployment_is_refused() -> None:
    recorded = record({}, {}, [a_transition(Trigger.SCHEDULED)], NOW)
    assert recorded.refused
    assert not recorded.instances


def test_late_news_is_kept_in_history_and_changes_nothing() -> None:
    known = an_instance(state=State.INSTALLED)
    recorded = record(
        {known.key: known},
        {deployment_id(): a_deployment(state=State.INSTALLED)},
        [a_transition(Trigger.HEALTHY, actor=Actor.NODE)],
        NOW,
    )
    assert recorded.instances == ()
    assert [entry.verdict for entry in recorded.history] == ["stale"]
    assert recorded.events[0].kind is EventKind.INSTANCE_STALE


def test_the_last_removal_archives_a_deployment_that_nobody_wants() -> None:
    leaving = an_instance(state=State.DELETING)
    recorded = record(
        {leaving.key: leaving},
        {deployment_id(): a_deployment(state=State.DELETING, wanted=False)},
        [a_transition(Trigger.REMOVED, actor=Actor.NODE)],
        NOW,
    )
    (deployment,) = recorded.deployments
    assert (deployment.state, deployment.archived_at) == (State.DELETED, NOW)


def test_a_failure_is_named_in_the_deployments_own_event() -> None:
    busy = an_instance(state=State.INSTALLING)
    recorded = record(
        {busy.key: busy},
        {deployment_id(): a_deployment(state=State.INSTALLING)},
        [a_transition(Trigger.GAVE_UP, actor=Actor.NODE)],
        NOW,
    )
    assert recorded.events[-1].message == "app-1 at home is FAILED: port taken (CREATE_FAILED)"


def test_a_secret_that_changes_after_going_back_does_not_bring_the_rejected_revision_again() -> None:
    """It is one more order for the release that was gone back to; only another revision ends the rejection."""
    failure = Failure(Code.HEALTH_CHECK_FAILED, "GET /healthz answered 500")
    back = replace(an_instance(at="first", failure=failure), rejected_revision=revision("second"))

    def after(*steps: Transition) -> tuple[Digest | None, Failure | None]:
        (item,) = record({back.key: back}, {deployment_id(): a_deployment()}, steps, NOW).instances
        return item.rejected_revision, item.failure

    renewed, healthy = a_transition(Trigger.CHANGED), a_transition(Trigger.HEALTHY, actor=Actor.NODE)
    assert after(renewed) == after(renewed, healthy) == (revision("second"), failure)
    assert after(replace(renewed, revision=revision("third"))) == (None, None)


def test_a_result_that_comes_after_the_news_of_its_health_does_not_hide_it() -> None:
    """A node that was cut off sends its result again, and has told on connecting that it is unhealthy by now."""
    sick = Unhealthy(NOW, "GET /healthz answered 500")
    known = replace(an_instance(state=State.INSTALLING), generation=Generation(8), unhealthy=sick)
    rows = {deployment_id(): a_deployment(state=State.INSTALLING)}
    (installed,) = record({known.key: known}, rows, [a_transition(Trigger.HEALTHY, actor=Actor.NODE)], NOW).instances
    assert (installed.state, installed.unhealthy) == (State.INSTALLED, sick)
    changed = replace(a_transition(Trigger.CHANGED), generation=Generation(9))
    (updating,) = record({known.key: installed}, rows, [changed], NOW).instances
    assert updating.unhealthy is None
