"""What a rollout does next, and the sentence that says why."""

from collections.abc import Sequence

import pytest

from homeport.core.model.rollout import Member, Rollout, Size
from homeport.core.rollout.advance import RolloutDecision, RolloutMove, advance
from homeport.core.rollout.waves import check_sizes
from homeport.vocabulary import RolloutSiteStatus, SiteName
from tests.support.rollouts import ALL, HALF, ONE, QUARTER, a_rollout

W, P, OK, F, OFF, HELD, L = (
    RolloutSiteStatus.WAITING,
    RolloutSiteStatus.PENDING,
    RolloutSiteStatus.INSTALLED,
    RolloutSiteStatus.FAILED,
    RolloutSiteStatus.OFFLINE,
    RolloutSiteStatus.HELD,
    RolloutSiteStatus.LEFT,
)


def members(rollout: Rollout, *, silent: str = "", held: str = "", **standings: RolloutSiteStatus) -> list[Member]:
    in_wave = {site: number for number, wave in enumerate(rollout.intent.waves) for site in wave.sites or ()}
    return [
        Member(
            SiteName(site),
            standing,
            in_wave.get(SiteName(site)),
            is_reachable=standing is not OFF and site not in silent,
            why="it broke" if standing is F else "",
            is_held=standing is HELD or site in held,
        )
        for site, standing in standings.items()
    ]


def given(decision: RolloutDecision) -> list[tuple[int, str]]:
    return [(number, "".join(sites)) for number, sites in decision.waves]


def test_the_first_wave_comes_at_once_and_takes_those_who_can_answer() -> None:
    rollout = a_rollout((ONE, None), (ALL, None))
    decision = advance(rollout, members(rollout, silent="a", a=W, b=W, c=W))
    assert (decision.move, given(decision)) == (RolloutMove.GIVE, [(0, "b")])


def test_a_wave_waits_for_its_share_and_says_what_is_missing() -> None:
    rollout = a_rollout((HALF, "ab"), (ALL, None))
    decision = advance(rollout, members(rollout, a=OK, b=P, c=W, d=W))
    assert decision == RolloutDecision(RolloutMove.WAIT, "wave 1: 1 of 2 sites installed, 100% are needed")


def test_the_next_wave_comes_when_enough_are_installed() -> None:
    rollout = a_rollout((HALF, "abcd"), (ALL, None), threshold_percent=75)
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OK, d=P, e=W, f=W))
    assert (decision.move, given(decision), decision.why) == (RolloutMove.GIVE, [(1, "ef")], "wave 2 of 2: 2 sites")


@pytest.mark.parametrize(
    ("threshold", "bad", "moves"),
    [
        (90, 1, RolloutMove.GIVE),
        (90, 2, RolloutMove.STOP),
        (100, 0, RolloutMove.GIVE),
        (100, 1, RolloutMove.STOP),
        (80, 2, RolloutMove.GIVE),
    ],
)
def test_it_stops_above_the_share_that_may_fail_and_not_at_it(threshold: int, bad: int, moves: RolloutMove) -> None:
    names = "abcdefghij"
    rollout = a_rollout((HALF, names), (ALL, None), threshold_percent=threshold)
    standings = {name: F if position < bad else OK for position, name in enumerate(names)}
    decision = advance(rollout, members(rollout, **standings, z=W))
    assert decision.move is moves
    if moves is RolloutMove.STOP:
        assert f"{bad} of 10 sites failed, {100 - threshold}% are allowed: a: it broke" in decision.why


def test_a_wave_that_breaks_late_stops_it_too() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, "bc"))
    assert advance(rollout, members(rollout, a=F, b=OK, c=OK)).move is RolloutMove.STOP


def test_a_wave_is_watched_for_as_long_as_asked_and_anew_after_a_relapse() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, None), bake_seconds=60.0)
    healthy = members(rollout, a=OK, b=W)
    assert advance(rollout, healthy).watched_seconds == 0.0
    baking = a_rollout((ONE, "a"), (ALL, None), bake_seconds=60.0, watched=59.0)
    decision = advance(baking, healthy)
    assert (decision.move, decision.watched_seconds) == (RolloutMove.WAIT, 59.0)
    assert advance(baking, members(rollout, a=P, b=W)).watched_seconds is None
    assert (
        advance(a_rollout((ONE, "a"), (ALL, None), bake_seconds=60.0, watched=60.0), healthy).move is RolloutMove.GIVE
    )


def test_who_is_offline_neither_blocks_nor_counts() -> None:
    rollout = a_rollout((HALF, "abc"), (ALL, None))
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OFF, d=W))
    assert (decision.move, given(decision)) == (RolloutMove.GIVE, [(1, "d")])
    waiting = advance(rollout, members(rollout, a=OK, b=P, c=OFF, d=W))
    assert waiting.why == "wave 1: 1 of 2 sites installed, 100% are needed; 1 site offline, not counted"


def test_others_stand_in_for_a_wave_that_cannot_answer() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, None))
    decision = advance(rollout, members(rollout, a=OFF, b=W, c=W))
    assert (decision.move, given(decision)) == (RolloutMove.GIVE, [(0, "b")])
    assert decision.why == "wave 1: a cannot be reached, so b take its place"
    nobody = advance(rollout, members(rollout, silent="bc", a=OFF, b=W, c=W))
    assert nobody.move is RolloutMove.WAIT


def test_others_stand_in_for_a_wave_whose_sites_have_something_else_by_now() -> None:
    """Somebody deployed by hand, or deleted it, where the first wave was to show that it works."""
    rollout = a_rollout((ONE, "a"), (ALL, None))
    decision = advance(rollout, members(rollout, a=L, b=W, c=W))
    assert (decision.move, given(decision)) == (RolloutMove.GIVE, [(0, "b")])
    assert decision.why == "wave 1: a left the rollout, so b take its place"
    several = a_rollout((HALF, "abc"), (ALL, None))
    assert given(advance(several, members(several, a=OK, b=OK, c=L, d=W))) == [(1, "d")]
    decision = advance(several, members(several, a=OK, b=OFF, c=L, d=W, e=W))
    assert decision.why == "wave 1: b cannot be reached and c left the rollout, so d take its place"
    assert advance(rollout, members(rollout, a=L)).move is RolloutMove.FINISH


def test_one_answer_of_many_is_too_little_to_go_on_from() -> None:
    """When central itself is cut off, everybody else falls silent at once."""
    rollout = a_rollout((HALF, "abcde"), (ALL, None))
    decision = advance(rollout, members(rollout, silent="fg", a=OK, b=OFF, c=OFF, d=OFF, e=OFF, f=W, g=W))
    assert decision.move is RolloutMove.WAIT


HELD_WAVES = [
    # who is in the wave that has begun                          what follows
    ({"a": OK, "b": OK, "c": HELD}, RolloutMove.GIVE, "wave 2 of 2: 1 site"),
    ({"a": OK, "b": P, "c": HELD}, RolloutMove.WAIT,
     "wave 1: 1 of 2 sites installed, 100% are needed; 1 site held, not counted"),
    ({"a": OK, "b": F, "c": HELD}, RolloutMove.STOP, "wave 1: 1 of 2 sites failed, 0% are allowed: b: it broke"),
    ({"a": OK, "b": HELD, "c": HELD}, RolloutMove.GIVE, "wave 1: b, c are held, so d take its place"),
    ({"a": HELD, "b": OFF, "c": HELD}, RolloutMove.GIVE,
     "wave 1: b cannot be reached and a, c are held, so d take its place"),
]  # fmt: skip


@pytest.mark.parametrize(("standings", "move", "why"), HELD_WAVES)
def test_who_is_held_neither_blocks_nor_counts(
    standings: dict[str, RolloutSiteStatus], move: RolloutMove, why: str
) -> None:
    rollout = a_rollout((HALF, "abc"), (ALL, None))
    decision = advance(rollout, members(rollout, **standings, d=W))
    assert (decision.move, decision.why) == (move, why)


def test_who_is_held_comes_last_and_stands_in_for_nobody() -> None:
    rollout = a_rollout((ONE, None), (ALL, None))
    assert given(advance(rollout, members(rollout, held="a", a=W, b=W, c=W))) == [(0, "b")]
    begun = a_rollout((ONE, "a"), (ALL, None))
    nobody = advance(begun, members(begun, held="b", a=HELD, b=W))
    assert nobody == RolloutDecision(RolloutMove.WAIT, "wave 1: a is held, and no other site can take its place")


def test_it_is_done_without_those_that_are_held_but_not_with_nobody() -> None:
    rollout = a_rollout((ALL, "ab"))
    assert advance(rollout, members(rollout, a=OK, b=HELD)) == RolloutDecision(
        RolloutMove.FINISH, "installed at 1 site, held at b"
    )
    nobody = advance(rollout, members(rollout, a=HELD, b=HELD))
    assert nobody == RolloutDecision(
        RolloutMove.WAIT, "no site can take it now: a, b are held; the files wait in Git"
    )


def test_it_is_done_when_everybody_has_it_and_tells_who_is_missing() -> None:
    rollout = a_rollout((ONE, "a"), (ALL, "bcde"), threshold_percent=60)
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OK, d=OFF, e=F, f=L))
    assert decision == RolloutDecision(RolloutMove.FINISH, "installed at 3 sites, failed at e, waiting for d")
    silence = a_rollout((ALL, "a"))
    assert advance(silence, members(silence, a=OFF)).move is RolloutMove.WAIT


def test_who_comes_during_the_last_wave_is_taken_into_it() -> None:
    rollout = a_rollout((ALL, "a"))
    assert given(advance(rollout, members(rollout, a=OK, b=W))) == [(0, "b")]


def test_a_wave_that_adds_nobody_is_noted_and_passed_over() -> None:
    rollout = a_rollout((Size(3), "abc"), (QUARTER, None), (ALL, None))
    decision = advance(rollout, members(rollout, a=OK, b=OK, c=OK, d=W))
    assert given(decision) == [(1, ""), (2, "d")]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([Size(0), ALL], "reaches no site"),
        ([Size(0, True), ALL], "reaches no site"),
        ([Size(150, True)], "more than all sites"),
        ([ONE, HALF], "must be 100%"),
        ([Size(5)], "must be 100%"),
        ([HALF, QUARTER, ALL], "adds no site"),
        ([Size(5), Size(5), ALL], "adds no site"),
        ([ALL, ALL], "adds no site"),
        ([Size(number) for number in range(1, 101)] + [ALL], "100 are the most"),
    ],
)
def test_sizes_that_make_no_sense_have_a_sentence(sizes: Sequence[Size], words: str) -> None:
    assert words in " ".join(problem.message for problem in check_sizes(sizes))


def test_sizes_that_grow_to_everybody_are_good() -> None:
    for sizes in ([ALL], [ONE, QUARTER, ALL], [ONE, Size(5), HALF, ALL], []):
        assert not list(check_sizes(sizes))
