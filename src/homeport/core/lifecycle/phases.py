"""A deployment's state in the coarser terms of the original orchestrator, for clients that were written for it.

`docs/reference/other-names.md` has the whole mapping. Our own interfaces use `State`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from homeport.vocabulary import State


class Phase(StrEnum):
    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    INSTALLING = "Installing"
    INSTALLED = "Installed"
    FAILED = "Failed"
    ARCHIVED = "Archived"


_PHASES: Final[Mapping[State, Phase]] = {
    State.PENDING: Phase.PENDING,
    State.INSTALLING: Phase.INSTALLING,
    State.INSTALLED: Phase.INSTALLED,
    State.UPDATING: Phase.INSTALLING,
    State.ROLLINGBACK: Phase.IN_PROGRESS,
    State.FAILED: Phase.FAILED,
    State.DELETING: Phase.IN_PROGRESS,
    State.DELETED: Phase.ARCHIVED,
}


def phase_of(state: State, *, accepted: bool) -> Phase:
    """`accepted`: its site knows it already, though no node has begun."""
    if state is State.PENDING and accepted:
        return Phase.IN_PROGRESS
    return _PHASES[state]
