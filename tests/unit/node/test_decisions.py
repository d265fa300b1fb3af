"""What a node decides, without a machine: which orders it takes, what to repair."""

from dataclasses import replace

import pytest

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Result
from homeport.core.node.backoff import BackoffRules, RepairBackoff, after_repair, may_repair
from homeport.core.node.entry import JournalEntry, OrderOutcome, accepted, ended
from homeport.core.node.orders import OrderVerdict, judge
from homeport.node.journal.records import dump_order, dump_result, load_order, load_result
from homeport.node.watch.drift import drift, runs
from homeport.ports import Container, Observation
from homeport.vocabulary import Code
from tests.support.builders import NOW
from tests.support.orders import a_component, a_release, to_apply, to_remove


def result_of(order: Order, *, succeeded: bool = True) -> Result:
    failure = None if succeeded else Failure(Code.EXITED, "it exited", "web")
    return Result(order.deployment_id, order.generation, order.kind, succeeded, NOW, failure)


# --- orders ---


def test_only_a_newer_generation_is_taken_up() -> None:
    working = accepted(to_apply(5), None)
    done = ended(working, result_of(to_apply(5)), keeps_good=False)
    assert judge(to_apply(1), None) is OrderVerdict.ACCEPT
    assert judge(to_apply(6), working) is OrderVerdict.ACCEPT
    assert judge(to_remove(6), done) is OrderVerdict.ACCEPT
    assert judge(to_apply(5), working) is OrderVerdict.BUSY
    assert judge(to_apply(5), done) is OrderVerdict.REPEAT
    assert judge(to_apply(4), working) is judge(to_remove(4), done) is OrderVerdict.OLDER


def test_a_number_that_is_given_out_a_second_time_for_something_else_is_no_repeat() -> None:
    """By a site whose database was put back from an older copy: what the node has is not what the site means."""
    before, after = (to_apply(5, replace(a_component("web"), secrets={"password": version})) for version in (3, 4))
    working = accepted(before, None)
    done = ended(working, result_of(before), keeps_good=False)
    for entry in (working, done):
        assert judge(after, entry) is OrderVerdict.ACCEPT, "a newer secret"
        assert judge(to_apply(5, a_component("api")), entry) is OrderVerdict.ACCEPT, "another release"
        assert judge(to_remove(5), entry) is OrderVerdict.ACCEPT
    assert judge(before, done) is OrderVerdict.REPEAT


def test_an_entry_remembers_the_last_good_release_through_failures_until_removal() -> None:
    first, second = to_apply(1, a_component("web")), to_apply(2, a_component("api"))
    entry = ended(accepted(first, None), result_of(first), keeps_good=False)
    assert entry.kept_release == entry.good == first.release
    entry = accepted(second, entry)
    assert entry.outcome is OrderOutcome.PENDING
    assert entry.kept_release is None
    assert entry.components == {"web", "api"}
    untouched = ended(entry, result_of(second, succeeded=False), keeps_good=True)
    assert untouched.kept_release == first.release
    broken = ended(entry, result_of(second, succeeded=False), keeps_good=False)
    assert broken.kept_release is None
    assert broken.good == first.release
    removed = ended(accepted(to_remove(3), broken), result_of(to_remove(3)), keeps_good=False)
    assert removed == JournalEntry(to_remove(3), removed.result)
    assert removed.kept_release is None


def test_a_first_release_that_failed_leaves_nothing_to_keep() -> None:
    entry = ended(accepted(to_apply(1), None), result_of(to_apply(1), succeeded=False), keeps_good=True)
    assert not entry.keeps_good
    assert entry.kept_release is None


def test_what_is_held_says_generation_revision_and_whether_it_is_done() -> None:
    order = to_apply(7)
    held = accepted(order, None).held
    assert order.release is not None
    assert (held.generation, held.revision, held.done) == (7, order.release.revision, False)
    assert accepted(to_remove(8), None).held.revision is None


@pytest.mark.parametrize(
    "order", [to_apply(1, a_component(fail="x", wait=False)), replace(to_remove(2), remove_images=True)]
)
def test_orders_and_results_survive_the_journal_unchanged(order: Order) -> None:
    assert load_order(dump_order(order)) == order
    for result in (result_of(order), result_of(order, succeeded=False)):
        assert load_result(dump_result(result)) == result


# --- drift ---


def seen(
    name: str = "web", *, running: bool = True, revision: str = "1.0.0", exit_code: int | None = None
) -> Observation:
    container = Container("1", f"{name}-1", running=running, exit_code=exit_code)
    return Observation(name, a_component(name, revision).digest, (container,))


def test_a_release_that_runs_as_specified_needs_no_repair() -> None:
    release = a_release(a_component("db"), a_component("web"))
    assert drift(release, [seen("db"), seen("web"), seen("stranger")]) == ()
    assert runs(release, [seen("db"), seen("web")])
    assert not runs(None, [])


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        ([], "web was missing"),
        ([Observation("web", a_component().digest)], "web was missing"),
        ([seen(revision="2.0.0")], "web ran from another specification"),
        ([seen(running=False)], "web was not running (web-1 had stopped)"),
        ([seen(running=False, exit_code=137)], "web was not running (web-1 had stopped with code 137)"),
    ],
)
def test_each_repair_says_what_was_wrong(observed: list[Observation], why: str) -> None:
    (repair,) = drift(a_release(), observed)
    assert repair.why == why
    assert not runs(a_release(), observed)


def test_a_crash_loop_is_repaired_at_doubling_distances_up_to_a_bound() -> None:
    rules = BackoffRules(first_seconds=1, max_seconds=8, forget_seconds=20)
    assert may_repair(None, 0)
    backoff, now, pauses = None, 0.0, []
    for _ in range(6):
        backoff = after_repair(backoff, now, rules)
        pauses.append(backoff.not_before - now)
        assert not may_repair(backoff, backoff.not_before - 0.1)
        now = backoff.not_before
        assert may_repair(backoff, now)
    assert pauses == [1, 2, 4, 8, 8, 8]


def test_a_component_that_ran_long_enough_starts_afresh() -> None:
    rules = BackoffRules(first_seconds=1, max_seconds=8, forget_seconds=20)
    assert after_repair(RepairBackoff(9, last=100, not_before=108), 121, rules) == RepairBackoff(1, 121, 122)
