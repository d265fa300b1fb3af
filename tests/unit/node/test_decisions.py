"""What a node decides, without a machine: which orders it takes, when a component is healthy, what to repair."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Result
from homeport.core.node.backoff import Backoff, BackoffRules, after_repair, may_repair
from homeport.core.node.entry import Entry, Outcome, accepted, ended
from homeport.core.node.orders import Verdict, judge
from homeport.node import checking
from homeport.node.drift import drift, runs
from homeport.node.records import dump_order, dump_result, load_order, load_result
from homeport.ports import Container, Health, Observation, Run
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
    assert judge(to_apply(1), None) is Verdict.ACCEPT
    assert judge(to_apply(6), working) is Verdict.ACCEPT
    assert judge(to_remove(6), done) is Verdict.ACCEPT
    assert judge(to_apply(5), working) is Verdict.BUSY
    assert judge(to_apply(5), done) is Verdict.REPEAT
    assert judge(to_apply(4), working) is judge(to_remove(4), done) is Verdict.OLDER


def test_an_entry_remembers_the_last_good_release_through_failures_until_removal() -> None:
    first, second = to_apply(1, a_component("web")), to_apply(2, a_component("api"))
    entry = ended(accepted(first, None), result_of(first), keeps_good=False)
    assert entry.kept_release == entry.good == first.release
    entry = accepted(second, entry)
    assert entry.outcome is Outcome.PENDING
    assert entry.kept_release is None
    assert entry.components == {"web", "api"}
    untouched = ended(entry, result_of(second, succeeded=False), keeps_good=True)
    assert untouched.kept_release == first.release
    broken = ended(entry, result_of(second, succeeded=False), keeps_good=False)
    assert broken.kept_release is None
    assert broken.good == first.release
    removed = ended(accepted(to_remove(3), broken), result_of(to_remove(3)), keeps_good=False)
    assert removed == Entry(to_remove(3), removed.result)
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


# --- health ---

RULES = checking.CheckRules(failures_max=3, spacing_seconds=1.0)
UP = Container("1", "web-1", running=True)
MORNING = datetime(2026, 1, 1, 8, tzinfo=UTC)


def watch(*polls: tuple[float, bool | None], container: Container = UP) -> checking.Verdict:
    checks, verdict = checking.Checks(), checking.Verdict()
    for now, healthy in polls:
        checks, verdict = checking.judge(
            checks, Health(healthy, "GET / answered 500"), [container], at(now), RULES, component="web"
        )
    return verdict


def at(seconds: float) -> checking.Now:
    return checking.Now(seconds, MORNING + timedelta(seconds=seconds))


def believed_at(*polls: tuple[float, str]) -> list[float]:
    """When a component without a check was believed, of polls that tell when it had started."""
    checks, when = checking.Checks(), []
    for now, started_at in polls:
        health = Health(True, runs=frozenset({Run("1", started_at)}))
        checks, verdict = checking.judge(checks, health, [UP], at(now), RULES, component="web")
        if verdict.healthy:
            when.append(now)
    return when


def test_a_success_is_believed_at_once() -> None:
    assert watch((0, True)).healthy
    assert watch((0, False), (5, False), (6, True)).healthy


def test_without_a_check_a_run_is_believed_when_it_goes_on() -> None:
    assert believed_at((0, "?"), (1, "?"), (1.9, "?"), (2, "?")) == [2]


def test_a_crash_that_the_engine_covers_up_is_never_believed() -> None:
    assert believed_at(*((second / 2, f"start {second}") for second in range(40))) == []
    assert believed_at((0, "a"), (1.5, "a"), (2, "b"), (3.5, "b"), (4, "b")) == [4]


def test_what_has_run_for_long_is_not_made_to_wait() -> None:
    """As engines write it: with nanoseconds, or in another zone."""
    assert believed_at((0, "2025-12-31T08:00:00.123456789Z")) == [0]
    assert believed_at((0, "2026-01-01T09:59:50+02:00")) == [0]
    assert believed_at((0, "2026-01-01T07:59:59Z"), (1, "2026-01-01T07:59:59Z")) == [1]


def test_a_clock_that_was_set_back_delays_no_longer_than_a_new_start() -> None:
    assert believed_at((0, "2027-01-01T00:00:00Z"), (2, "2027-01-01T00:00:00Z")) == [2]


def test_three_failures_in_a_row_have_failed_and_say_why() -> None:
    assert watch((0, False), (1, False)).failure is None
    failure = watch((0, False), (1, False), (2, False)).failure
    assert failure == Failure(
        Code.HEALTH_CHECK_FAILED, "the health check of web failed 3 times: GET / answered 500", "web"
    )


def test_failures_count_only_when_they_lie_apart_and_follow_each_other() -> None:
    assert watch((0, False), (0.1, False), (0.2, False), (0.9, False)).failure is None
    assert watch((0, False), (1, False), (1.5, None), (2.5, False)).failure is None


def test_a_container_that_ended_has_failed_at_once() -> None:
    gone = Container("1", "web-1", running=False, exit_code=3)
    failure = watch((0, None), container=gone).failure
    assert failure is not None
    assert failure.code == Code.EXITED
    assert failure.message.startswith("web-1 exited with code 3")


def test_polling_starts_fast_and_stays_bounded() -> None:
    delays = [checking.poll_delay(number) for number in range(100)]
    assert delays[0] == 0.05
    assert delays == sorted(delays)
    assert max(delays) == 1.0


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
    assert after_repair(Backoff(9, last=100, not_before=108), 121, rules) == Backoff(1, 121, 122)
