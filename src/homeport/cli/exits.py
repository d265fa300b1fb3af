"""Exit codes are an interface: scripts depend on them. This is their only table."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from homeport.errors import Conflict, HomeportError, InvalidInput, NotFound, PeerUnavailable, Refused


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    REFUSED = 5
    CHANGES = 6
    TIMED_OUT = 7
    ROLLED_BACK = 8


MEANING: Final[Mapping[Exit, str]] = MappingProxyType(
    {
        Exit.DONE: "Done. A plan has no changes.",
        Exit.FAILED: "It was tried and failed, what was given is not valid, or `status` shows what needs attention.",
        Exit.USAGE: "The command line is wrong: an unknown option, a missing argument.",
        Exit.NOT_FOUND: "There is no such app, deployment, site, node or file.",
        Exit.UNREACHABLE: "The server cannot be reached at the given URL.",
        Exit.REFUSED: "Refused: not allowed, in conflict with what is there, or a name that means two things.",
        Exit.CHANGES: "A plan has changes.",
        Exit.TIMED_OUT: "A wait timed out; the work continues.",
        Exit.ROLLED_BACK: "The update failed and was rolled back.",
    }
)

_BY_ERROR: Final = (
    (NotFound, Exit.NOT_FOUND),
    (PeerUnavailable, Exit.UNREACHABLE),
    (Refused, Exit.REFUSED),
    (Conflict, Exit.REFUSED),
)


def exit_for(error: HomeportError) -> Exit:
    if isinstance(error, InvalidInput) and error.problems and all(_is_option(each.field) for each in error.problems):
        return Exit.USAGE
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)


def _is_option(field: str) -> bool:
    """A problem with an option (`-p`) is one of the command line, not of a document."""
    return field.startswith("-")
