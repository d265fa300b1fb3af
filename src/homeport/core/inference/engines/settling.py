"""Whether an engine has taken over another model, or its site went back to the one before. Pure."""

from collections.abc import Sequence
from enum import StrEnum

from homeport.core.model.instance import Instance
from homeport.vocabulary import Digest, State


class Settling(StrEnum):
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


def settling(wanted: Digest, instances: Sequence[Instance]) -> tuple[Settling, str]:
    """The verdict over all instances, and why it failed."""
    living = [each for each in instances if each.state is not State.DELETED]
    for each in living:
        is_given_up = each.state is State.FAILED and each.next_at is None and each.revision == wanted
        is_back = each.state is State.INSTALLED and each.rejected_revision == wanted
        if is_back or is_given_up:
            why = each.failure.message if each.failure is not None else "its node went back to the model before"
            return Settling.FAILED, f"{each.node_id}: {why}"
    if living and all(each.state is State.INSTALLED and each.running_revision == wanted for each in living):
        return Settling.DONE, ""
    return Settling.WAITING, ""
