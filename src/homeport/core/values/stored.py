"""Values that a role keeps as text, read back strictly: anything else in their place was not written by us."""

import json
import re
from typing import Final

from homeport.vocabulary import Commit

_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def commit_of(text: str) -> Commit:
    """Raises ValueError for what is not a commit."""
    if _COMMIT.fullmatch(text) is None:
        raise ValueError("it is not a commit")
    return Commit(text)


def strings_of(text: str) -> tuple[str, ...]:
    """Raises ValueError or TypeError for what is not a list of strings."""
    value = json.loads(text)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError("it is not a list of strings")
    return tuple(value)
