"""The lifecycle of a rollout. The table is the documentation: one row, one fact.

The operator's command is in Git; `trigger_of` turns it into an event of this machine, if it causes one.
"""

from typing import Final

from homeport.core.lifecycle.machine import Machine, Row
from homeport.vocabulary import Actor, RolloutCommand
from homeport.vocabulary import RolloutState as S
from homeport.vocabulary import RolloutTrigger as H

_CENTRAL: Final = frozenset({Actor.CENTRAL})
_PERSON: Final = frozenset({Actor.PERSON})

# fmt: off
ROLLOUT: Final = Machine(start=S.RUNNING, rows=(
    # while         on              becomes         by
    Row(S.RUNNING,  H.PAUSED,       S.PAUSED,       _PERSON),
    Row(S.RUNNING,  H.BROKE,        S.STOPPED,      _CENTRAL),
    Row(S.RUNNING,  H.REACHED_ALL,  S.DONE,         _CENTRAL),
    Row(S.PAUSED,   H.RESUMED,      S.RUNNING,      _PERSON),
    Row(S.STOPPED,  H.RESUMED,      S.RUNNING,      _PERSON),   # stops again unless the cause was fixed
    Row(S.RUNNING,  H.ABORTED,      S.ABORTED,      _PERSON),
    Row(S.PAUSED,   H.ABORTED,      S.ABORTED,      _PERSON),
    Row(S.STOPPED,  H.ABORTED,      S.ABORTED,      _PERSON),
    Row(S.DONE,     H.PAUSED,       S.PAUSED,       _PERSON),   # the pause crossed with its end: sites that join wait
    Row(S.DONE,     H.ABORTED,      S.ABORTED,      _PERSON),   # sites that join later no longer get it
    Row(S.RUNNING,  H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),
    Row(S.PAUSED,   H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),
    Row(S.STOPPED,  H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),
    Row(S.DONE,     H.SUPERSEDED,   S.SUPERSEDED,   _CENTRAL),  # a newer one for the same group is done too
), stale=())
# fmt: on

ENDED: Final = frozenset({S.DONE, S.ABORTED, S.SUPERSEDED})
OPEN: Final = frozenset({S.RUNNING, S.PAUSED, S.STOPPED})
GIVING: Final = frozenset({S.RUNNING, S.DONE})
"""States in which a site that joins the group gets the group's release."""

_COMMANDS: Final = {
    (RolloutCommand.PAUSED, S.RUNNING): H.PAUSED,
    (RolloutCommand.PAUSED, S.DONE): H.PAUSED,
    (RolloutCommand.RUNNING, S.PAUSED): H.RESUMED,
    (RolloutCommand.ABORTED, S.RUNNING): H.ABORTED,
    (RolloutCommand.ABORTED, S.PAUSED): H.ABORTED,
    (RolloutCommand.ABORTED, S.STOPPED): H.ABORTED,
    (RolloutCommand.ABORTED, S.DONE): H.ABORTED,
}


def trigger_of(word: RolloutCommand, state: S) -> H | None:
    """The event that the operator's command causes in this state; None where it already holds, or comes too late."""
    return _COMMANDS.get((word, state))
