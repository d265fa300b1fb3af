"""The lifecycle of a job. The table is the documentation: one row, one fact.

A site steps it, also where a node reported what happened. Central copies what a site made of it, and steps it only
where the site cannot: it has not taken the job yet, or has lost its database.
"""

from typing import Final

from homeport.core.lifecycle.machine import Machine, Row
from homeport.vocabulary import Actor
from homeport.vocabulary import JobState as S
from homeport.vocabulary import JobTrigger as T

_SITE: Final = frozenset({Actor.SITE})
_NODE: Final = frozenset({Actor.NODE})
_BOTH: Final = _SITE | _NODE
_PERSON: Final = frozenset({Actor.PERSON, Actor.CENTRAL})
_CENTRAL: Final = frozenset({Actor.CENTRAL})

# fmt: off
JOB_STATES: Final = Machine(start=S.PENDING, rows=(
    # while          on             becomes        by
    Row(S.PENDING,   T.ASSIGNED,    S.ASSIGNED,    _SITE),
    Row(S.PENDING,   T.GAVE_UP,     S.FAILED,      _SITE | _CENTRAL),  # a secret is missing
    Row(S.PENDING,   T.CANCELLED,   S.CANCELLED,   _PERSON),
    Row(S.ASSIGNED,  T.STARTED,     S.RUNNING,     _BOTH),     # by the site: an inference request
    Row(S.ASSIGNED,  T.SUCCEEDED,   S.COMPLETED,   _BOTH),     # the progress report of its start was lost
    Row(S.ASSIGNED,  T.GAVE_UP,     S.FAILED,      _BOTH | _CENTRAL),     # by the site: the node is lost
    Row(S.ASSIGNED,  T.RETRIED,     S.PENDING,     _SITE),     # attempts are bounded by the spec
    Row(S.ASSIGNED,  T.CANCELLED,   S.CANCELLED,   _BOTH),
    Row(S.RUNNING,   T.SUCCEEDED,   S.COMPLETED,   _BOTH),
    Row(S.RUNNING,   T.GAVE_UP,     S.FAILED,      _BOTH | _CENTRAL),
    Row(S.RUNNING,   T.RETRIED,     S.PENDING,     _SITE),
    Row(S.RUNNING,   T.CANCELLED,   S.CANCELLED,   _BOTH),
), stale=(
    (S.RUNNING,   T.STARTED),                                  # repeated after a lost acknowledgement
    (S.COMPLETED, T.STARTED), (S.COMPLETED, T.SUCCEEDED), (S.COMPLETED, T.GAVE_UP), (S.COMPLETED, T.CANCELLED),
    (S.FAILED,    T.STARTED), (S.FAILED,    T.SUCCEEDED), (S.FAILED,    T.GAVE_UP), (S.FAILED,    T.CANCELLED),
    (S.CANCELLED, T.STARTED), (S.CANCELLED, T.SUCCEEDED), (S.CANCELLED, T.GAVE_UP), (S.CANCELLED, T.CANCELLED),
    (S.PENDING,   T.STARTED), (S.PENDING,   T.SUCCEEDED),      # of an attempt that was given up
))
# fmt: on
