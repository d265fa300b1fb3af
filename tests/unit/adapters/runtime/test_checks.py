"""When a health check is due, and when its failures count."""

from homeport.adapters.runtime.checks import CheckHistory, is_due, record
from homeport.core.model.custom import CheckRules

RULES = CheckRules(interval_seconds=10.0, retries=2)


def fail(history: CheckHistory, now: float, rules: CheckRules = RULES) -> CheckHistory:
    return record(history, rules, passed=False, message="no", now=now)


def succeed(history: CheckHistory, now: float) -> CheckHistory:
    return record(history, RULES, passed=True, message="", now=now)


def test_a_check_that_never_ran_is_due() -> None:
    assert is_due(CheckHistory(since=0.0), RULES, 0.0)


def test_the_first_good_answer_makes_it_healthy_at_once() -> None:
    assert succeed(CheckHistory(since=0.0), 0.1).verdict.healthy is True


def test_until_then_it_is_asked_early_and_ever_less_often() -> None:
    history = fail(CheckHistory(since=0.0), 0.0)
    assert not is_due(history, RULES, 0.1)
    assert is_due(history, RULES, 0.4)
    later = history
    for moment in range(1, 20):
        later = fail(later, moment / 10)
    assert not is_due(later, RULES, 2.0 + 5.0)
    assert is_due(later, RULES, 2.0 + 10.0)


def test_early_failures_do_not_count() -> None:
    history = CheckHistory(since=0.0)
    for moment in (0.0, 1.0, 2.0, 3.0, 9.0):
        history = fail(history, moment)
    assert history.verdict.healthy is None
    assert history.verdict.message == "no"


def test_failures_one_interval_apart_make_it_unhealthy_after_the_retries() -> None:
    history = fail(fail(CheckHistory(since=0.0), 10.0), 15.0)
    assert history.verdict.healthy is None
    assert fail(history, 20.0).verdict.healthy is False


def test_a_healthy_one_is_asked_once_per_interval_and_survives_a_single_failure() -> None:
    history = succeed(CheckHistory(since=0.0), 1.0)
    assert not is_due(history, RULES, 10.9)
    assert is_due(history, RULES, 11.0)
    once = fail(history, 11.0)
    assert once.verdict.healthy is True
    assert fail(once, 21.0).verdict.healthy is False


def test_failures_in_the_start_period_do_not_count() -> None:
    rules = CheckRules(interval_seconds=1.0, retries=1, start_period_seconds=30.0)
    assert fail(CheckHistory(since=0.0), 29.0, rules).verdict.healthy is None
    assert fail(CheckHistory(since=0.0), 31.0, rules).verdict.healthy is False


def test_an_unhealthy_one_recovers() -> None:
    unhealthy = fail(fail(CheckHistory(since=0.0), 10.0), 20.0)
    assert succeed(unhealthy, 30.0).verdict.healthy is True
