"""Who asks. Every use-case that changes or shows something takes a Caller, from the first commit on."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    role: Role
    address: str = ""
    """Where the request came from; empty for work inside the process."""


INTERNAL = Caller("homeport", Role.ADMIN)
"""The product's own loops."""
