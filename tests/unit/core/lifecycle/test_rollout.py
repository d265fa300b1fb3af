"""Walks the table of rollouts."""

from itertools import product

import pytest

from homeport.core.lifecycle.machine import Stepped
from homeport.core.lifecycle.rollout import ENDED, GIVING, OPEN, ROLLOUT, trigger_of
from homeport.errors import IllegalTransition
from homeport.vocabulary import Actor, RolloutCommand, RolloutState, RolloutTrigger

ROWS = {(row.while_in, row.on): row for row in ROLLOUT.rows}


@pytest.mark.parametrize(("state", "trigger"), list(product(RolloutState, RolloutTrigger)))
def test_every_pair_is_a_row_or_illegal(state: RolloutState, trigger: RolloutTrigger) -> None:
    row = ROWS.get((state, trigger))
    for actor in Actor:
        if row is not None and actor in row.by:
            assert ROLLOUT.step(state, trigger, actor) == Stepped(row.becomes)
        else:
            with pytest.raises(IllegalTransition):
                ROLLOUT.step(state, trigger, actor)


def test_every_state_is_reached_and_every_open_one_can_end() -> None:
    reached = {ROLLOUT.start} | {row.becomes for row in ROLLOUT.rows}
    assert reached == set(RolloutState) == OPEN | ENDED
    for state in OPEN:
        assert {row.becomes for row in ROLLOUT.rows if row.while_in is state} & ENDED
    for state in (RolloutState.ABORTED, RolloutState.SUPERSEDED):
        assert not [row for row in ROLLOUT.rows if row.while_in is state]


@pytest.mark.parametrize(("word", "state"), list(product(RolloutCommand, RolloutState)))
def test_a_word_says_something_that_the_table_allows_or_nothing(word: RolloutCommand, state: RolloutState) -> None:
    trigger = trigger_of(word, state)
    if trigger is None:
        assert word.value == state.value or state in ENDED or state is RolloutState.STOPPED
    else:
        assert ROLLOUT.step(state, trigger, Actor.PERSON) == Stepped(RolloutState(word.value))


@pytest.mark.parametrize("state", RolloutState)
def test_nothing_is_given_once_git_says_that_it_is_paused_or_aborted(state: RolloutState) -> None:
    """Also where the word came to Git after the rollout had ended."""
    for word in (RolloutCommand.PAUSED, RolloutCommand.ABORTED):
        trigger = trigger_of(word, state)
        after = state if trigger is None else RolloutState(word.value)
        assert after not in GIVING
