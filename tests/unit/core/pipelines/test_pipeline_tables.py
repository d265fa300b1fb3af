"""Walks the tables of runs and of steps."""

from itertools import product
from typing import Any

import pytest

from homeport.core.lifecycle.machine import Stepped
from homeport.core.pipelines.lifecycle import RUN_ENDED, RUN_OPEN, RUN_STATES, STEP_ENDED, STEP_STATES
from homeport.errors import IllegalTransition
from homeport.vocabulary import Actor, RunState, RunTrigger, StepState, StepTrigger


@pytest.mark.parametrize(
    ("table", "states", "triggers", "ended"),
    [(RUN_STATES, RunState, RunTrigger, RUN_ENDED), (STEP_STATES, StepState, StepTrigger, STEP_ENDED)],
)
def test_every_pair_is_a_row_or_illegal_and_every_open_state_can_end(
    table: Any, states: Any, triggers: Any, ended: Any
) -> None:
    rows = {(row.while_in, row.on): row for row in table.rows}
    for state, trigger, actor in product(states, triggers, Actor):
        row = rows.get((state, trigger))
        if row is not None and actor in row.by:
            assert table.step(state, trigger, actor) == Stepped(row.becomes)
        else:
            with pytest.raises(IllegalTransition):
                table.step(state, trigger, actor)
    assert {table.start} | {row.becomes for row in table.rows} == set(states)
    for state in set(states) - ended:
        assert {row.becomes for row in table.rows if row.while_in is state} & ended
    assert not [row for row in table.rows if row.while_in in ended]


def test_a_run_is_open_or_ended() -> None:
    assert set(RunState) == RUN_OPEN | RUN_ENDED
    assert not RUN_OPEN & RUN_ENDED
