"""What a rollout does next, and the sentence that says why."""

from collections.abc import Sequence

import pytest

from homeport.core.model.rollout import Member, Rollout, Size
from homeport.core.rollout.advance import Decision, Move, advance
from homeport.core.rollout.waves import check_sizes
from homeport.vocabulary import SiteName, Standing
from tests.support.builders import NOW
from tests.support.rollouts import ALL, HALF, ONE, QUARTER, a_rollout

W, P, OK, F, OFF, L = (
    Standing.WAITING,
    Standing.PENDING,
    Standing.INSTALLED,
    Standing.FAILED,
    Standing.OFFLINE,
    Standing.LEFT,
)


def members(rollout: Rollout, *, silent: str = "", **standings: Standing) -> list[Member]:
    in_wave = {site: number for number, wave in enumerate(rollout.intent.waves) for site in wave.sites or ()}
    return [
        Member(
            SiteName(site),
            standing,
            in_wave.get(SiteName(site)),
            is_reachable=standing is not OFF and site not in silent,
            why="it broke" if standing is F else "",
        )
        for site, standing in standings.items()
    ]


def given(decision: Decision) -> list[tuple[int, str]]:
    return [(number, "".join(sites)) for number, sites in decision.waves]


def test_the_first_wave_comes_at_once_and_takes_those_who_can_answer() -> None:
    rollout = a_rollout((ONE, None), (ALL, None))
    decision = advance(rollout, members(rollout, silent="a", a=W, b=W, c=W), NOW)
    assert (decision.move, given(decision)) == (Move.GIVE, [(0, "b")])


def test_a_wave_waits_for_its_share_and_says_what_is_missing() -> None:
    rollout = a_rollout((HALF, "ab"), (ALL, None))
    decision = advance(rollout, members(rollout, a=OK, b=P, c=W, d=W), NOW)
    assert decision == Decision(Move.WAIT, "wave 1: 1 of 2 sites installed, 100% are needed")


def test_the_next_wave_comes_when_enough_are_installed() -> None:
    rollout = a_rollout((HALF, "abcd"), (ALL, None), threshold_percent=75)
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OK, d=P, e=W, f=W), NOW)
    assert (decision.move, given(decision), decision.why) == (Move.GIVE, [(1, "ef")], "wave 2 of 2: 2 sites")


@pytest.mark.parametrize(
    ("threshold", "bad", "moves"),
    [(90, 1, Move.GIVE), (90, 2, Move.STOP), (100, 0, Move.GIVE), (100, 1, Move.STOP), (80, 2, Move.GIVE)],
)
def test_it_stops_above_the_share_that_may_fail_and_not_at_it(threshold: int, bad: int, moves: Move) -> None:
    names = "abcdefghij"
    rollout = a_rollout((HALF, names), (ALL, None), threshold_percent=threshold)
    standings = {name: F if position < bad else OK for position, name in enumerate(names)}
    decision = advance(rollout, members(rollout, **standings, z=W), NOW)
    assert decision.move is moves
    if moves is Move.STOP:
        assert f"{bad} of 10 sites failed, {100 - threshold}% are allowed: a: it broke" in decision.why


def test_a_wave_that_breaks_late_stops_it_too() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, "bc"))
    assert advance(rollout, members(rollout, a=F, b=OK, c=OK), NOW).move is Move.STOP


def test_a_wave_is_watched_for_as_long_as_asked_and_anew_after_a_relapse() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, None), bake_seconds=60.0)
    healthy = members(rollout, a=OK, b=W)
    assert advance(rollout, healthy, NOW).baking_since == NOW
    baking = a_rollout((ONE, "a"), (ALL, None), bake_seconds=60.0, baking=59.0)
    decision = advance(baking, healthy, NOW)
    assert (decision.move, decision.baking_since) == (Move.WAIT, baking.baking_since)
    assert advance(baking, members(rollout, a=P, b=W), NOW).baking_since is None
    assert advance(a_rollout((ONE, "a"), (ALL, None), bake_seconds=60.0, baking=60.0), healthy, NOW).move is Move.GIVE
    ahead = a_rollout((ONE, "a"), (ALL, None), bake_seconds=60.0, baking=-86_400.0)
    assert advance(ahead, healthy, NOW).baking_since == NOW  # the clock was set back


def test_who_is_offline_neither_blocks_nor_counts() -> None:
    rollout = a_rollout((HALF, "abc"), (ALL, None))
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OFF, d=W), NOW)
    assert (decision.move, given(decision)) == (Move.GIVE, [(1, "d")])
    waiting = advance(rollout, members(rollout, a=OK, b=P, c=OFF, d=W), NOW)
    assert waiting.why == "wave 1: 1 of 2 sites installed, 100% are needed; 1 site offline, not counted"


def test_others_stand_in_for_a_wave_that_cannot_answer() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, None))
    decision = advance(rollout, members(rollout, a=OFF, b=W, c=W), NOW)
    assert (decision.move, given(decision)) == (Move.GIVE, [(0, "b")])
    assert decision.why == "wave 1: a cannot be reached, so b stand in"
    nobody = advance(rollout, members(rollout, silent="bc", a=OFF, b=W, c=W), NOW)
    assert nobody.move is Move.WAIT


def test_one_answer_of_many_is_too_little_to_go_on_from() -> None:
    """When central itself is cut off, everybody else falls silent at once."""
    rollout = a_rollout((HALF, "abcde"), (ALL, None))
    decision = advance(rollout, members(rollout, silent="fg", a=OK, b=OFF, c=OFF, d=OFF, e=OFF, f=W, g=W), NOW)
    assert decision.move is Move.WAIT


def test_it_is_done_when_everybody_has_it_and_tells_who_is_missing() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, "bcde"), threshold_percent=60)
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OK, d=OFF, e=F, f=L), NOW)
    assert decision == Decision(Move.FINISH, "installed at 3 sites, failed at e, waiting for d")
    silence = a_rollout((ALL, "a"))
    assert advance(silence, members(silence, a=OFF), NOW).move is Move.WAIT


def test_who_comes_during_the_last_wave_is_taken_into_it() -> None:
    rollout = a_rollout((ALL, "a"))
    assert given(advance(rollout, members(rollout, a=OK, b=W), NOW)) == [(0, "b")]


def test_a_wave_that_adds_nobody_is_noted_and_passed_over() -> None:
    rollout = a_rollout((Size(3), "abc"), (QUARTER, None), (ALL, None))
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OK, d=W), NOW)
    assert given(decision) == [(1, ""), (2, "d")]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([Size(0), ALL], "reaches nobody"),
        ([Size(0, True), ALL], "reaches nobody"),
        ([Size(150, True)], "more than everybody"),
        ([ONE, HALF], "must be 100%"),
        ([Size(5)], "must be 100%"),
        ([HALF, QUARTER, ALL], "adds nobody"),
        ([Size(5), Size(5), ALL], "adds nobody"),
        ([ALL, ALL], "adds nobody"),
        ([Size(number) for number in range(1, 101)] + [ALL], "100 are the most"),
    ],
)
def test_sizes_that_make_no_sense_have_a_sentence(sizes: Sequence[Size], words: str) -> None:
    assert words in " ".join(problem.message for problem in check_sizes(sizes))


def test_sizes_that_grow_to_everybody_are_good() -> None:
    for sizes in ([ALL], [ONE, QUARTER, ALL], [ONE, Size(5), HALF, ALL], []):
        assert not list(check_sizes(sizes))
