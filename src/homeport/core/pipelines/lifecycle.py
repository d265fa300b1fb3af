"""The lifecycles of a run and of its steps. The tables are the documentation: one row, one fact.

Central steps both. A step that goes over a list has items; each of them, and the step, follows the second table.
"""

from typing import Final

from homeport.core.lifecycle.machine import Machine, Row
from homeport.vocabulary import Actor
from homeport.vocabulary import RunState as R
from homeport.vocabulary import RunTrigger as RT
from homeport.vocabulary import StepState as S
from homeport.vocabulary import StepTrigger as ST

_CENTRAL: Final = frozenset({Actor.CENTRAL})

# fmt: off
RUN_STATES: Final = Machine(start=R.PENDING, rows=(
    # while         on             becomes        by
    Row(R.PENDING,  RT.STARTED,    R.RUNNING,     _CENTRAL),
    Row(R.PENDING,  RT.FAILED,     R.FAILED,      _CENTRAL),   # its pipeline cannot be read any more
    Row(R.PENDING,  RT.CANCELLED,  R.CANCELLED,   _CENTRAL),
    Row(R.RUNNING,  RT.SUCCEEDED,  R.SUCCEEDED,   _CENTRAL),
    Row(R.RUNNING,  RT.FAILED,     R.FAILED,      _CENTRAL),
    Row(R.RUNNING,  RT.CANCELLED,  R.CANCELLED,   _CENTRAL),   # when the last item under way has stopped
), stale=())

STEP_STATES: Final = Machine(start=S.WAITING, rows=(
    # while         on             becomes        by
    Row(S.WAITING,  ST.STARTED,    S.RUNNING,     _CENTRAL),
    Row(S.WAITING,  ST.FAILED,     S.FAILED,      _CENTRAL),   # an expression has no value
    Row(S.WAITING,  ST.SKIPPED,    S.SKIPPED,     _CENTRAL),
    Row(S.WAITING,  ST.CANCELLED,  S.CANCELLED,   _CENTRAL),
    Row(S.RUNNING,  ST.SUCCEEDED,  S.SUCCEEDED,   _CENTRAL),
    Row(S.RUNNING,  ST.FAILED,     S.FAILED,      _CENTRAL),
    Row(S.RUNNING,  ST.RETRIED,    S.WAITING,     _CENTRAL),   # an item; attempts are bounded by its step
    Row(S.RUNNING,  ST.CANCELLED,  S.CANCELLED,   _CENTRAL),
), stale=())
# fmt: on

RUN_ENDED: Final = frozenset({R.SUCCEEDED, R.FAILED, R.CANCELLED})
RUN_OPEN: Final = frozenset(R) - RUN_ENDED
STEP_ENDED: Final = frozenset({S.SUCCEEDED, S.FAILED, S.SKIPPED, S.CANCELLED})
