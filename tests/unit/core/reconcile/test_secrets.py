"""What changed and missing secrets mean for the plan."""

from dataclasses import replace

import pytest

from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Failure, Instance
from homeport.core.reconcile.check import checked_plan
from homeport.core.reconcile.plan import Move, View, plan
from homeport.vocabulary import Code, OrderKind, State
from homeport.vocabulary import Trigger as H
from tests.support.builders import NOW, a_desired, a_node, an_instance


def using(*names: str, at: str = "first") -> Desired:
    desired = a_desired(at=at)
    (part,) = desired.release.components
    part = replace(part, environment={f"V{number}": f"secret://{name}" for number, name in enumerate(names)})
    return replace(desired, release=replace(desired.release, components=(part,)))


def view(
    desired: Desired, *instances: Instance, secrets: dict[str, int], given: dict[str, int] | None = None
) -> View:
    return View(
        desired={desired.id: desired},
        unreadable=frozenset(),
        nodes={a_node().id: a_node()},
        instances={item.key: item for item in instances},
        secrets=secrets,
        given={item.key: given for item in instances} if given is not None else {},
    )


def told(moves: tuple[Move, ...]) -> list[tuple[H, OrderKind | None]]:
    return [(move.trigger, move.order) for move in moves]


def test_a_deployment_whose_secrets_are_here_is_scheduled() -> None:
    assert told(plan(view(using("DB"), secrets={"DB": 1}), NOW)) == [(H.SCHEDULED, OrderKind.APPLY)]


def test_a_missing_secret_fails_at_once_in_words() -> None:
    scheduled, gave_up = plan(view(using("DB", "KEY"), secrets={"KEY": 1}), NOW)
    assert scheduled.trigger is H.SCHEDULED
    assert gave_up.trigger is H.GAVE_UP
    assert gave_up.failure == Failure(Code.SECRET_MISSING, "site home has no secret DB")


def test_it_is_said_once_and_tried_again_when_the_secret_comes() -> None:
    failed = an_instance(state=State.FAILED, runs=False, failure=Failure(Code.SECRET_MISSING, "no"))
    assert plan(view(using("DB"), failed, secrets={}), NOW) == ()
    (move,) = plan(view(using("DB"), failed, secrets={"DB": 1}), NOW)
    assert (move.trigger, move.order) == (H.SUPERSEDED_INSTALL, OrderKind.APPLY)
    assert move.why == "the secret DB has version 1 now"


def test_a_retry_whose_secret_was_removed_meanwhile_fails_in_words_too() -> None:
    """Its order cannot be sent, and it would stay under way until its deadline."""
    pull = Failure(Code.IMAGE_PULL_FAILED, "no")
    failed = replace(an_instance(state=State.FAILED, runs=False, failure=pull), attempt=1, next_at=NOW)
    moves = plan(view(using("DB"), failed, secrets={}), NOW)
    assert told(moves) == [(H.RETRIED_INSTALL, OrderKind.APPLY), (H.GAVE_UP, None)]
    assert moves[-1].failure == Failure(Code.SECRET_MISSING, "site home has no secret DB")


def test_a_newer_version_updates_what_uses_it() -> None:
    (move,) = plan(view(using("DB"), an_instance(), secrets={"DB": 2}, given={"DB": 1}), NOW)
    assert (move.trigger, move.order, move.why) == (
        H.CHANGED,
        OrderKind.APPLY,
        "the secret DB has version 2 now",
    )


def test_a_version_that_was_given_already_changes_nothing() -> None:
    assert plan(view(using("DB"), an_instance(), secrets={"DB": 2, "OTHER": 5}, given={"DB": 2}), NOW) == ()


def test_what_runs_stays_when_its_secret_goes() -> None:
    assert plan(view(using("DB"), an_instance(), secrets={}, given={"DB": 1}), NOW) == ()


def test_an_update_that_needs_a_missing_secret_fails_and_leaves_the_release_that_runs() -> None:
    moves = plan(view(using("DB", at="second"), an_instance(), secrets={}), NOW)
    assert told(moves) == [(H.CHANGED, OrderKind.APPLY), (H.GAVE_UP, None)]


def test_an_order_under_way_is_superseded_by_a_newer_version() -> None:
    busy = an_instance(state=State.INSTALLING, runs=False)
    assert told(plan(view(using("DB"), busy, secrets={"DB": 2}, given={"DB": 1}), NOW)) == [
        (H.SUPERSEDED_INSTALL, OrderKind.APPLY)
    ]


def test_what_failed_with_the_very_same_secrets_is_not_tried_again() -> None:
    failed = an_instance(state=State.FAILED, runs=False, failure=Failure(Code.EXITED, "no"))
    assert plan(view(using("DB"), failed, secrets={"DB": 2}, given={"DB": 2}), NOW) == ()


def test_a_secret_that_changes_when_a_retry_is_due_gives_one_order_and_not_two() -> None:
    failed = replace(
        an_instance(state=State.FAILED, runs=False, failure=Failure(Code.IMAGE_PULL_FAILED, "no")), next_at=NOW
    )
    assert told(plan(view(using("DB"), failed, secrets={"DB": 2}, given={"DB": 1}), NOW)) == [
        (H.SUPERSEDED_INSTALL, OrderKind.APPLY)
    ]


def test_a_rollback_to_a_release_whose_secret_was_removed_fails_and_is_made_when_the_secret_comes() -> None:
    """The newer release does not use it, so that nothing kept it from being removed."""
    before, wanted = using("DB"), a_desired(at="second")
    failed = an_instance(state=State.FAILED, at="second", failure=Failure(Code.EXITED, "no"))
    failed = replace(failed, running_revision=before.revision, next_at=NOW)
    known = replace(view(wanted, failed, secrets={}), past={(before.id, before.revision): before})
    rolled_back, gave_up = plan(known, NOW)
    assert (rolled_back.trigger, rolled_back.order) == (H.ROLLED_BACK, OrderKind.APPLY)
    assert (gave_up.trigger, gave_up.revision) == (H.GAVE_UP, before.revision)
    assert gave_up.failure == Failure(Code.SECRET_MISSING, "site home has no secret DB")
    after = replace(
        failed, revision=before.revision, rejected_revision=wanted.revision, failure=gave_up.failure, next_at=None
    )
    assert plan(replace(known, instances={after.key: after}), NOW) == ()
    (move,) = plan(replace(known, instances={after.key: after}, secrets={"DB": 1}), NOW)
    assert (move.order, move.revision, move.why) == (
        OrderKind.APPLY,
        before.revision,
        "the secret DB has version 1 now",
    )


def stranded(*, given: dict[str, int] | None, secrets: dict[str, int], uses: tuple[str, ...] = ("DB",)) -> View:
    """No node can take the second revision; the first keeps running, and uses these secrets."""
    refused = an_instance(state=State.FAILED, at="second", failure=Failure(Code.NO_ELIGIBLE_NODE, "no"))
    before = using(*uses)
    refused = replace(refused, running_revision=before.revision)
    wanted = a_desired(at="second", selector="zone=b")
    known = view(wanted, refused, secrets=secrets, given=given)
    return replace(known, past={(before.id, before.revision): before})


@pytest.mark.parametrize("given", [{"DB": 1}, None])
def test_a_newer_version_also_reaches_what_runs_while_no_node_can_take_its_update(
    given: dict[str, int] | None,
) -> None:
    known = stranded(secrets={"DB": 2}, given=given)
    (move,) = plan(known, NOW)
    assert (move.trigger, move.order, move.why) == (
        H.SUPERSEDED_UPDATE,
        OrderKind.APPLY,
        "the secret DB has version 2 now",
    )
    assert move.revision == using("DB").revision, "the release that runs, not the one that has no node"
    assert checked_plan(known, NOW).set_aside == {}


def test_after_that_the_update_is_refused_again_and_nothing_more_is_ordered() -> None:
    known = stranded(secrets={"DB": 2}, given={"DB": 2})
    assert plan(known, NOW) == ()
    (refused,) = known.instances.values()
    renewed = replace(refused, state=State.INSTALLED, revision=refused.running_revision, failure=None)
    assert told(plan(replace(known, instances={renewed.key: renewed}), NOW)) == [(H.CHANGED, None), (H.GAVE_UP, None)]


def test_what_runs_without_a_node_for_its_update_stays_when_a_secret_is_gone_or_was_never_ordered() -> None:
    assert plan(stranded(secrets={}, given={"DB": 1}), NOW) == ()
    assert plan(stranded(secrets={"DB": 2}, given={"OTHER": 1}), NOW) == ()
