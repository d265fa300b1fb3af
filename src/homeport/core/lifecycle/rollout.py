"""The lifecycle of a rollout. The table is the documentation: one row, one fact.

What a person wants stands in Git as a word; `happening_of` turns it into what happens, if anything does.
"""

from typing import Final

from homeport.core.lifecycle.machine import Machine, Row
from homeport.vocabulary import Actor, RolloutWord
from homeport.vocabulary import RolloutHappening as H
from homeport.vocabulary import RolloutState as S

_CENTRAL: Final = frozenset({Actor.CENTRAL})
_PERSON: Final = frozenset({Actor.PERSON})

# fmt: off
ROLLOUT: Final = Machine(start=S.RUNNING, rows=(
    # while         on              becomes         by
    Row(S.RUNNING,  H.PAUSED,       S.PAUSED,       _PERSON),
    Row(S.RUNNING,  H.BROKE,        S.STOPPED,      _CENTRAL),
    Row(S.RUNNING,  H.REACHED_ALL,  S.DONE,         _CENTRAL),
    Row(S.PAUSED,   H.RESUMED,      S.RUNNING,      _PERSON),
    Row(S.STOPPED,  H.RESUMED,      S.RUNNING,      _PERSON),   # stops again where nothing was mended
    Row(S.RUNNING,  H.ABORTED,      S.ABORTED,      _PERSON),
    Row(S.PAUSED,   H.ABORTED,      S.ABORTED,      _PERSON),
    Row(S.STOPPED,  H.ABORTED,      S.ABORTED,      _PERSON),
    Row(S.DONE,     H.ABORTED,      S.ABORTED,      _PERSON),   # whoever joins later does not get it any more
    Row(S.RUNNING,  H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),
    Row(S.PAUSED,   H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),
    Row(S.STOPPED,  H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),
    Row(S.DONE,     H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),  # a newer one for the same group is done too
), stale=())
# fmt: on

ENDED: Final = frozenset({S.DONE, S.ABORTED, S.SUPERSEDED})
OPEN: Final = frozenset({S.RUNNING, S.PAUSED, S.STOPPED})
GIVING: Final = frozenset({S.RUNNING, S.DONE})
"""States in which a site that comes to the group gets what the group has."""

_WISHES: Final = {
    (RolloutWord.PAUSED, S.RUNNING): H.PAUSED,
    (RolloutWord.RUNNING, S.PAUSED): H.RESUMED,
    (RolloutWord.ABORTED, S.RUNNING): H.ABORTED,
    (RolloutWord.ABORTED, S.PAUSED): H.ABORTED,
    (RolloutWord.ABORTED, S.STOPPED): H.ABORTED,
    (RolloutWord.ABORTED, S.DONE): H.ABORTED,
}


def happening_of(word: RolloutWord, state: S) -> H | None:
    """What the operator's word means for a rollout in this state; None where it already is so, or comes too late."""
    return _WISHES.get((word, state))
