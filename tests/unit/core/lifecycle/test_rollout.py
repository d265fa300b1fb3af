"""Walks the table of rollouts."""

from itertools import product

import pytest

from homeport.core.lifecycle.machine import Stepped
from homeport.core.lifecycle.rollout import ENDED, OPEN, ROLLOUT, happening_of
from homeport.errors import IllegalTransition
from homeport.vocabulary import Actor, RolloutHappening, RolloutState, RolloutWord

ROWS = {(row.while_in, row.on): row for row in ROLLOUT.rows}


@pytest.mark.parametrize(("state", "happening"), list(product(RolloutState, RolloutHappening)))
def test_every_pair_is_a_row_or_illegal(state: RolloutState, happening: RolloutHappening) -> None:
    row = ROWS.get((state, happening))
    for actor in Actor:
        if row is not None and actor in row.by:
            assert ROLLOUT.step(state, happening, actor) == Stepped(row.becomes)
        else:
            with pytest.raises(IllegalTransition):
                ROLLOUT.step(state, happening, actor)


def test_every_state_is_reached_and_every_open_one_can_end() -> None:
    reached = {ROLLOUT.start} | {row.becomes for row in ROLLOUT.rows}
    assert reached == set(RolloutState) == OPEN | ENDED
    for state in OPEN:
        assert {row.becomes for row in ROLLOUT.rows if row.while_in is state} & ENDED
    for state in (RolloutState.ABORTED, RolloutState.SUPERSEDED):
        assert not [row for row in ROLLOUT.rows if row.while_in is state]


@pytest.mark.parametrize(("word", "state"), list(product(RolloutWord, RolloutState)))
def test_a_word_says_something_that_the_table_allows_or_nothing(word: RolloutWord, state: RolloutState) -> None:
    happening = happening_of(word, state)
    if happening is None:
        assert word.value == state.value or state in ENDED or state is RolloutState.STOPPED
    else:
        assert ROLLOUT.step(state, happening, Actor.PERSON) == Stepped(RolloutState(word.value))
