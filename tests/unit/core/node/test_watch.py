"""What a site is told of health after installation, and how little a flapping release can make of it."""

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.node.backoff import BackoffRules
from homeport.core.node.watch import Announcement, ObservedHealth, Seen, WatchRules, keeps_restarting, look

RULES = WatchRules(60.0, BackoffRules(first_seconds=5.0, max_seconds=300.0, forget_seconds=1800.0))
BAD, GOOD, UNKNOWN = {"web": Seen(False, "web: 500")}, {"web": Seen(True)}, {"web": Seen(None)}


def test_bad_news_is_told_at_once_and_only_once() -> None:
    watch, told = look(ObservedHealth(), BAD, 0.0, RULES)
    assert told == Announcement(False, "web", "web: 500")
    assert look(watch, BAD, 30.0, RULES)[1] is None


def test_what_was_healthy_and_stays_so_is_not_told() -> None:
    assert look(ObservedHealth(), GOOD, 0.0, RULES)[1] is None
    assert look(ObservedHealth(), UNKNOWN, 0.0, RULES)[1] is None


def test_good_news_is_told_when_it_has_lasted() -> None:
    watch, _ = look(ObservedHealth(), BAD, 0.0, RULES)
    watch, told = look(watch, GOOD, 10.0, RULES)
    assert told is None
    watch, told = look(watch, GOOD, 15.0, RULES)
    assert told == Announcement(True, "", "healthy again")
    assert look(watch, GOOD, 20.0, RULES)[1] is None


def test_not_knowing_is_not_good_news() -> None:
    watch, _ = look(ObservedHealth(), BAD, 0.0, RULES)
    watch, _ = look(watch, GOOD, 10.0, RULES)
    watch, _ = look(watch, UNKNOWN, 14.0, RULES)
    assert look(watch, GOOD, 16.0, RULES)[1] is None


def test_another_reason_is_told_after_a_while() -> None:
    watch, _ = look(ObservedHealth(), BAD, 0.0, RULES)
    other = {"web": Seen(False, "web: no answer")}
    watch, told = look(watch, other, 30.0, RULES)
    assert told is None
    assert look(watch, other, 60.0, RULES)[1] == Announcement(False, "web", "web: no answer")


def test_after_a_restart_of_the_node_what_was_told_is_taken_back() -> None:
    told = look(ObservedHealth(unhealthy=True, why="web: 500"), GOOD, 0.0, RULES)[1]
    assert told is not None
    assert told.healthy


@given(period=st.floats(1.5, 20.0))
def test_an_app_that_flaps_for_an_hour_is_told_of_a_few_times(period: float) -> None:
    watch, told, now = ObservedHealth(), 0, 0.0
    while now < 3600.0:
        watch, news = look(watch, BAD if int(now / period) % 2 else GOOD, now, RULES)
        told += news is not None
        now += 1.0
    assert 1 <= told <= 8


def test_three_starts_in_a_row_are_a_crash_that_its_engine_covers_up() -> None:
    assert keeps_restarting((0.0, 20.0, 40.0), 50.0, seconds=60.0)
    assert not keeps_restarting((0.0, 20.0), 50.0, seconds=60.0)
    assert not keeps_restarting((0.0, 20.0, 40.0), 101.0, seconds=60.0), "it has run for a minute since"
    assert not keeps_restarting((0.0, 500.0, 1000.0), 1001.0, seconds=60.0), "so seldom is no loop"
