"""Walks the table of jobs."""

from itertools import product

import pytest

from homeport.core.jobs.job import ENDED, OPEN
from homeport.core.jobs.lifecycle import JOB_STATES
from homeport.core.lifecycle.machine import Stale, Stepped
from homeport.errors import IllegalTransition
from homeport.vocabulary import Actor, JobState, JobTrigger

ROWS = {(row.while_in, row.on): row for row in JOB_STATES.rows}


@pytest.mark.parametrize(("state", "trigger"), list(product(JobState, JobTrigger)))
def test_every_pair_is_a_row_stale_or_illegal(state: JobState, trigger: JobTrigger) -> None:
    row = ROWS.get((state, trigger))
    for actor in Actor:
        if row is not None and actor in row.by:
            assert JOB_STATES.step(state, trigger, actor) == Stepped(row.becomes)
        elif (state, trigger) in JOB_STATES.stale:
            assert JOB_STATES.step(state, trigger, actor) == Stale(state)
        else:
            with pytest.raises(IllegalTransition):
                JOB_STATES.step(state, trigger, actor)


def test_every_state_is_reached_every_open_one_can_end_and_an_ended_one_stays() -> None:
    assert {JOB_STATES.start} | {row.becomes for row in JOB_STATES.rows} == set(JobState) == OPEN | ENDED
    for state in OPEN:
        assert {row.becomes for row in JOB_STATES.rows if row.while_in is state} & ENDED
    assert not [row for row in JOB_STATES.rows if row.while_in in ENDED]


def test_a_late_report_about_an_ended_job_changes_nothing() -> None:
    for state, trigger in product(ENDED, (JobTrigger.STARTED, JobTrigger.SUCCEEDED, JobTrigger.GAVE_UP)):
        assert JOB_STATES.step(state, trigger, Actor.NODE) == Stale(state)
