"""The health rule: what samples of a component add up to."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.model.health import CheckResult, CheckRules, ContainerRun, ContainerState, HealthSample
from homeport.core.model.instance import Failure
from homeport.core.node.health import ComponentHealth, HealthVerdict, Now, is_due, judge, poll_delay, progress_of
from homeport.vocabulary import Code

RULES = CheckRules(interval_seconds=10.0, retries=2)
MORNING = datetime(2026, 1, 1, 8, tzinfo=UTC)
RUN = ContainerRun("1")
REASON = "GET / answered 500"


def at(seconds: float) -> Now:
    return Now(seconds, MORNING + timedelta(seconds=seconds))


def checked(
    passed: bool | None, rules: CheckRules = RULES, *, name: str = "web", run: ContainerRun = RUN
) -> HealthSample:
    result = None if passed is None else CheckResult(passed, "" if passed else REASON)
    return HealthSample(name, run, rules=rules, result=result)


def watch(*looks: tuple[float, HealthSample]) -> tuple[ComponentHealth, HealthVerdict]:
    health, verdict = ComponentHealth(), HealthVerdict(None)
    for now, sample in looks:
        health, verdict = judge(health, [sample], at(now), component="web")
    return health, verdict


def verdict_of(*looks: tuple[float, HealthSample]) -> HealthVerdict:
    return watch(*looks)[1]


# --- checks ---


def test_a_check_that_fails_right_after_the_start_is_told_as_what_it_is_waited_for() -> None:
    health, verdict = watch((0, checked(False)))
    assert progress_of(health, verdict.message) == f"not ready yet: {REASON}"
    health, verdict = watch((0, HealthSample("web", RUN)))
    assert progress_of(health, verdict.message) == verdict.message, "it has no check"


def test_a_check_that_passes_is_believed_at_once() -> None:
    assert verdict_of((0, checked(True))) == HealthVerdict(True)
    assert verdict_of((0, checked(False)), (0.1, checked(True))) == HealthVerdict(True)


def test_a_check_that_has_not_run_yet_is_waited_for() -> None:
    assert verdict_of((0, checked(None))).healthy is None


def test_early_failures_do_not_count_and_say_why_it_waits() -> None:
    looks = [(moment, checked(False)) for moment in (0.0, 1.0, 2.0, 3.0, 9.0)]
    assert verdict_of(*looks) == HealthVerdict(None, REASON)


def test_failures_one_interval_apart_fail_after_the_retries() -> None:
    assert verdict_of((0, checked(False)), (10, checked(False)), (15, checked(False))).healthy is None
    verdict = verdict_of((0, checked(False)), (10, checked(False)), (20, checked(False)))
    assert verdict.healthy is False
    expected = f"the health check of web failed 2 times: {REASON}"
    assert verdict.failure == Failure(Code.HEALTH_CHECK_FAILED, expected, "web")


def test_a_healthy_run_survives_a_single_failure() -> None:
    assert verdict_of((1, checked(True)), (11, checked(False))).healthy is True
    assert verdict_of((1, checked(True)), (11, checked(False)), (21, checked(False))).healthy is False
    survived = [(1, checked(True)), (11, checked(False)), (21, checked(True)), (31, checked(False))]
    assert verdict_of(*survived).healthy is True


def test_failures_in_the_start_period_do_not_count() -> None:
    rules = CheckRules(interval_seconds=1.0, retries=1, start_period_seconds=30.0)
    assert verdict_of((0, checked(None, rules)), (29, checked(False, rules))).healthy is None
    assert verdict_of((0, checked(None, rules)), (31, checked(False, rules))).healthy is False


def test_an_unhealthy_run_recovers() -> None:
    unhealthy = [(0, checked(False)), (10, checked(False)), (20, checked(False))]
    assert verdict_of(*unhealthy, (30, checked(True))) == HealthVerdict(True)


def test_a_restarted_container_has_to_pass_again() -> None:
    assert verdict_of((0, checked(True)), (1, checked(None, run=ContainerRun("1", "later")))).healthy is None


def test_a_result_of_the_engine_is_counted_once_and_by_its_own_time() -> None:
    def sample(*, end: float) -> HealthSample:
        result = CheckResult(False, REASON, MORNING + timedelta(seconds=end))
        return HealthSample("web", RUN, rules=RULES, result=result)

    first = [(moment, sample(end=10.0)) for moment in (10.9, 21.0, 33.0)]
    assert verdict_of((0, checked(None)), *first).healthy is None
    assert verdict_of((0, checked(None)), *first, (33.1, sample(end=20.01))).healthy is False


# --- when a check is due ---


def test_a_check_that_never_ran_is_due() -> None:
    assert is_due(ComponentHealth(), RUN, RULES, now=0.0)


def test_until_the_first_pass_it_is_executed_early_and_ever_less_often() -> None:
    health, _ = watch((0, checked(False)))
    assert not is_due(health, RUN, RULES, now=0.1)
    assert is_due(health, RUN, RULES, now=0.4)
    health, _ = watch(*((moment / 10, checked(False)) for moment in range(20)))
    assert not is_due(health, RUN, RULES, now=1.9 + 5.0)
    assert is_due(health, RUN, RULES, now=1.9 + 10.0)


def test_a_healthy_one_is_checked_once_per_interval() -> None:
    health, _ = watch((1, checked(True)))
    assert not is_due(health, RUN, RULES, now=10.9)
    assert is_due(health, RUN, RULES, now=11.0)


# --- without a check ---


def believed_at(*looks: tuple[float, str]) -> list[float]:
    """When a component without a check was believed, of looks that tell when it had started."""
    health, when = ComponentHealth(), []
    for now, started_at in looks:
        health, verdict = judge(
            health, [HealthSample("web", ContainerRun("1", started_at))], at(now), component="web"
        )
        if verdict.healthy:
            when.append(now)
    return when


def test_without_a_check_a_run_is_believed_when_it_lasts() -> None:
    assert believed_at((0, "?"), (1, "?"), (1.9, "?"), (2, "?")) == [2]


def test_a_crash_that_a_restart_policy_covers_up_is_never_believed() -> None:
    assert believed_at(*((second / 2, f"start {second}") for second in range(40))) == []
    assert believed_at((0, "a"), (1.5, "a"), (2, "b"), (3.5, "b"), (4, "b")) == [4]


def test_what_has_run_for_long_is_not_made_to_wait() -> None:
    """As engines write it: with nanoseconds, or in another zone."""
    assert believed_at((0, "2025-12-31T08:00:00.123456789Z")) == [0]
    assert believed_at((0, "2026-01-01T09:59:50+02:00")) == [0]
    assert believed_at((0, "2026-01-01T07:59:59Z"), (1, "2026-01-01T07:59:59Z")) == [1]


def test_a_clock_that_was_set_back_delays_no_longer_than_a_new_start() -> None:
    assert believed_at((0, "2027-01-01T00:00:00Z"), (2, "2027-01-01T00:00:00Z")) == [2]


# --- states ---


def stopped(**details: object) -> HealthSample:
    return HealthSample("web-1", RUN, ContainerState.STOPPED, **details)  # type: ignore[arg-type]  # fields by name


def test_a_container_that_exited_has_failed_at_once() -> None:
    verdict = verdict_of((0, stopped(exit_code=3)))
    assert verdict.failure == Failure(Code.EXITED, "web-1 exited with code 3", "web")


@pytest.mark.parametrize("message", ["it is paused", "it is gone"])
def test_one_that_does_not_run_and_did_not_exit_gets_two_seconds_to_come_back(message: str) -> None:
    gone = stopped(message=message)
    assert verdict_of((0, gone), (1, gone), (1.9, gone)) == HealthVerdict(None, f"web-1: {message}")
    verdict = verdict_of((0, gone), (1, gone), (2, gone))
    assert verdict.failure is not None
    assert verdict.failure.code == Code.HEALTH_CHECK_FAILED
    assert message in verdict.failure.message
    assert verdict_of((0, gone), (1, gone), (1.9, checked(True))).healthy


def test_a_healthy_one_that_is_paused_gets_the_same_time() -> None:
    paused = stopped(message="it is paused")
    assert verdict_of((0, checked(True)), (60, paused)).healthy is None
    assert verdict_of((0, checked(True)), (60, paused), (61, paused), (62, paused)).healthy is False


def test_nothing_at_all_is_a_failure_in_the_end() -> None:
    health = ComponentHealth()
    health, first = judge(health, [], at(0), component="web")
    health, second = judge(health, [], at(1), component="web")
    _, third = judge(health, [], at(2), component="web")
    assert (first.healthy, second.healthy, third.healthy) == (None, None, False)


def test_what_is_ready_needs_no_check_and_what_is_pending_is_waited_for() -> None:
    assert verdict_of((0, HealthSample("web", RUN, ContainerState.READY))) == HealthVerdict(True)
    waiting = HealthSample("web", RUN, ContainerState.PENDING, message="it has not completed yet")
    assert verdict_of((0, waiting), (9999, waiting)) == HealthVerdict(None, "it has not completed yet")


def test_the_worst_container_decides_and_is_named() -> None:
    good = HealthSample("web-1", ContainerRun("1"), ContainerState.READY)
    slow = checked(False, name="web-2", run=ContainerRun("2"))
    gone = HealthSample("web-3", ContainerRun("3"), ContainerState.STOPPED, exit_code=1)
    health = ComponentHealth()
    assert judge(health, [good, slow], at(0), component="web")[1] == HealthVerdict(None, f"web-2: {REASON}")
    assert judge(health, [good, slow, gone], at(0), component="web")[1].message == "web-3 exited with code 1"


def test_polling_starts_fast_and_stays_bounded() -> None:
    delays = [poll_delay(number) for number in range(100)]
    assert delays[0] == 0.05
    assert delays == sorted(delays)
    assert max(delays) == 1.0
